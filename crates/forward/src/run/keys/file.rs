//! A key file: the keys of both directions of a tunnel, as one of its ends has them.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;

use host::private_file::{self, OTHERS};
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::KeysError;
use crate::esp::{Key, KeyError};

/// Length of a key file at most, in bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// A key file starts without a state file only this long after it was made, in seconds.
const FRESH_S: u64 = 24 * 60 * 60;
const NS_PER_S: u64 = 1_000_000_000;
/// Line that the first start adds.
const USED: &str = "used = true\n";

/// Keys of one end of a tunnel.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFile {
    /// Time at which it was made, in seconds since 1970.
    made: u64,
    send_spi: u32,
    send_key: String,
    send_salt: String,
    receive_spi: u32,
    receive_key: String,
    receive_salt: String,
    #[serde(default)]
    used: bool,
}

/// SPI, key and salt of one direction.
type Direction = (u32, String, String);

impl KeyFile {
    /// New random keys. Errors: the kernel gives no random bytes.
    pub fn generate() -> Result<KeyFile, KeysError> {
        let ((send_spi, send_key, send_salt), mut receive) = (direction()?, direction()?);
        while receive.0 == send_spi {
            receive = direction()?;
        }
        let (receive_spi, receive_key, receive_salt) = receive;
        let made = sys::clock::realtime_ns() / NS_PER_S;
        Ok(KeyFile {
            made,
            send_spi,
            send_key,
            send_salt,
            receive_spi,
            receive_key,
            receive_salt,
            used: false,
        })
    }

    /// The same keys as the other end has them.
    pub fn mirrored(&self) -> KeyFile {
        KeyFile {
            made: self.made,
            send_spi: self.receive_spi,
            send_key: self.receive_key.clone(),
            send_salt: self.receive_salt.clone(),
            receive_spi: self.send_spi,
            receive_key: self.send_key.clone(),
            receive_salt: self.send_salt.clone(),
            used: false,
        }
    }

    /// Makes the file, readable by its owner alone. Errors: there is one.
    pub fn write_new(&self, path: &Path) -> Result<(), KeysError> {
        let text = format!(
            "# Keys of one end of a wirepath tunnel. A reader of this file can read the tunnel.\n\
             made = {}\n{}",
            self.made,
            self.text()
        );
        private_file::create(path, text.as_bytes()).map(drop).map_err(|source| {
            let doing = match source.kind() {
                std::io::ErrorKind::AlreadyExists => "overwrite; remove it, or name another file:",
                _ => "make",
            };
            KeysError::File { doing, path: path.to_owned(), source }
        })
    }

    /// Reads and checks a key file.
    pub fn read(path: &Path) -> Result<KeyFile, KeysError> {
        let file = private_file::open(path, OpenOptions::new().read(true), OTHERS)?;
        let mut text = String::new();
        let failed = |source| KeysError::File { doing: "read", path: path.to_owned(), source };
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let refused = |why: String| KeysError::Refused { path: path.to_owned(), why };
        // No text of the parser: it would show the keys.
        let found: KeyFile = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            refused(format!(
                "is no key file, by its line {line}; make one with wirepath tunnel keys"
            ))
        })?;
        for is_extended in [true, false] {
            found
                .keys(is_extended)
                .map_err(|error| refused(format!("has a wrong key: {error}")))?;
        }
        if found.send_spi == found.receive_spi || found.send_key == found.receive_key {
            return Err(refused("has one key for both directions; make another file".to_owned()));
        }
        Ok(found)
    }

    /// Keys of both directions: into the tunnel, out of it.
    pub(super) fn keys(&self, is_extended: bool) -> Result<(Key, Key), KeyError> {
        let key = |spi: u32, key: &str, salt: &str| {
            let key = bytes(key).unwrap_or_default();
            let salt = bytes(salt).and_then(|salt| salt.try_into().ok());
            Key::new(spi, &key, salt.ok_or(KeyError::Salt)?, is_extended)
        };
        let send = key(self.send_spi, &self.send_key, &self.send_salt)?;
        Ok((send, key(self.receive_spi, &self.receive_key, &self.receive_salt)?))
    }

    /// Name of the keys, from which they cannot be found.
    pub(super) fn fingerprint(&self) -> String {
        hex(&digest(&SHA256, self.text().as_bytes()).as_ref()[..16])
    }

    /// True if no start has used it: it has no mark, and it was made lately.
    pub(super) fn is_fresh(&self, now_s: u64) -> bool {
        !self.used && self.made.abs_diff(now_s) <= FRESH_S
    }

    /// Marks the file as used, on disk, unless it is.
    pub(super) fn mark_used(&self, path: &Path) -> Result<(), KeysError> {
        if self.used {
            return Ok(());
        }
        let mut file = private_file::open(path, OpenOptions::new().append(true), OTHERS)?;
        let marked = file.write_all(USED.as_bytes()).and_then(|()| file.sync_all());
        marked.map_err(|source| KeysError::File {
            doing: "add a mark of use to",
            path: path.to_owned(),
            source,
        })
    }

    /// The keys alone.
    fn text(&self) -> String {
        let mut text = String::new();
        for (way, spi, key, salt) in [
            ("send", self.send_spi, &self.send_key, &self.send_salt),
            ("receive", self.receive_spi, &self.receive_key, &self.receive_salt),
        ] {
            let _ = writeln!(text, "{way}_spi = {spi}");
            let _ = writeln!(text, "{way}_key = \"{key}\"\n{way}_salt = \"{salt}\"");
        }
        text
    }
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyFile").field("send_spi", &self.send_spi).finish_non_exhaustive()
    }
}

/// Random SPI, key and salt of one direction.
fn direction() -> Result<Direction, KeysError> {
    let mut random = [0_u8; 40];
    sys::random::fill(&mut random).map_err(KeysError::Random)?;
    let (spi, rest) = random.split_at(4);
    let (salt, key) = rest.split_at(4);
    let spi = u32::from_be_bytes([spi[0], spi[1], spi[2], spi[3]]);
    // Numbers up to 255 are reserved.
    Ok((spi | 1 << 31, hex(key), hex(salt)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` if the text is not hexadecimal.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let is_hex =
        text.len().is_multiple_of(2) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    is_hex.then(|| (0..text.len()).step_by(2).map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_is_read_as_it_was_written_and_its_mirror_has_the_ways_exchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.keys");
        let keys = KeyFile::generate().unwrap();
        keys.write_new(&path).unwrap();
        assert_eq!(KeyFile::read(&path).unwrap(), keys);
        let mirrored = keys.mirrored();
        assert_ne!(mirrored.fingerprint(), keys.fingerprint());
        assert_eq!(mirrored.mirrored(), keys);
        let (send, receive) = keys.keys(true).unwrap();
        let (far_send, far_receive) = mirrored.keys(true).unwrap();
        assert_eq!((send.spi(), receive.spi()), (far_receive.spi(), far_send.spi()));
        let error = keys.write_new(&path).unwrap_err().to_string();
        assert!(error.starts_with("cannot overwrite; remove it"), "{error}");
        assert!(!format!("{keys:?}").contains(&keys.send_key), "no key is printed");
    }

    #[test]
    fn key_file_is_fresh_until_it_is_marked_or_old() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.keys");
        let keys = KeyFile::generate().unwrap();
        keys.write_new(&path).unwrap();
        assert!(keys.is_fresh(keys.made + 60) && keys.is_fresh(keys.made - 60));
        assert!(!keys.is_fresh(keys.made + FRESH_S + 1));
        keys.mark_used(&path).unwrap();
        let marked = KeyFile::read(&path).unwrap();
        assert!(!marked.is_fresh(keys.made));
        assert_eq!(marked.fingerprint(), keys.fingerprint());
        let text = fs::read_to_string(&path).unwrap();
        marked.mark_used(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "one mark");
    }

    #[test]
    fn wrong_files_are_refused_without_showing_a_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.keys");
        let keys = KeyFile::generate().unwrap();
        keys.write_new(&path).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let spi = |spi: u32| format!("send_spi = {spi}");
        for (from, to, said) in [
            ("send_salt", "send_slt", "is no key file, by its line 5"),
            (&spi(keys.send_spi)[..], "send_spi = 7", "SPI 7 is reserved"),
            (&keys.send_key, "00ff", "a key has 2 bytes"),
            (&keys.send_key, "zz", "a key has 0 bytes"),
            (&keys.send_salt, "00", "a salt has four bytes"),
            (&keys.send_key, &keys.receive_key, "one key for both directions"),
        ] {
            fs::write(&path, good.replacen(from, to, 1)).unwrap();
            let error = KeyFile::read(&path).unwrap_err().to_string();
            assert!(error.contains(said), "{from}: {error}");
            assert!(!error.contains(&keys.receive_key), "{error}");
        }
    }
}
