//! State file of a key: the numbers that no later start may use again.
//!
//! Two blocks are written in turn, each with a checksum, so that a write that was interrupted leaves the
//! block before it. The numbers of a block are used only after it is on disk.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use host::private_file::{self, OTHERS_WRITE};
use ring::digest::{SHA256, digest};

use super::KeysError;

/// A unit that disks write on its own.
const BLOCK_BYTES: usize = 4096;
const MAGIC: &str = "wirepath-tunnel-state-1";

/// Numbers of both directions of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Numbers {
    /// Least sequence number that no start has reserved.
    pub(super) sequence: u64,
    /// Least nonce that no start has reserved.
    pub(super) iv: u64,
    /// Highest number received.
    pub(super) received: u64,
}

/// An open state file, locked against other processes.
#[derive(Debug)]
pub(super) struct State {
    file: File,
    path: PathBuf,
    fingerprint: String,
    identity: u64,
    /// Block of the numbers.
    block: u64,
    numbers: Numbers,
}

impl State {
    /// Opens the state of a key.
    ///
    /// - `is_fresh`: the key was never used, so that a missing file is made.
    ///
    /// Errors: the file is missing, another process has it, or it is of another key or another file.
    pub(super) fn open(path: &Path, fingerprint: &str, is_fresh: bool) -> Result<State, KeysError> {
        let failed = |doing| move |source| KeysError::File { doing, path: path.to_owned(), source };
        let refused = |why: &str| KeysError::Refused { path: path.to_owned(), why: why.to_owned() };
        if is_fresh && let Err(source) = private_file::create(path, &[]) {
            // One that a start left empty when it was interrupted is taken.
            if source.kind() != io::ErrorKind::AlreadyExists {
                return Err(failed("make")(source));
            }
        }
        let mut options = OpenOptions::new();
        let file = private_file::open(path, options.read(true).write(true), OTHERS_WRITE)
            .map_err(|error| missing(path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refused("is in use by another tunnel or process; each key has one"));
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let metadata = file.metadata().map_err(failed("read"))?;
        let identity = identity_of(&metadata);
        let mut state = State {
            file,
            path: path.to_owned(),
            fingerprint: fingerprint.to_owned(),
            identity,
            block: 1,
            numbers: Numbers { sequence: 1, iv: 0, received: 0 },
        };
        if is_fresh && metadata.len() == 0 {
            state.write(state.numbers)?;
            return Ok(state);
        }
        let found = [0, 1].map(|block| state.read(block));
        let best = (0..).zip(found).filter_map(|(block, found)| Some((found?, block))).max();
        let Some((Block { numbers, fingerprint: of, identity: own }, block)) = best else {
            return Err(refused("is damaged; make new keys"));
        };
        if of != fingerprint {
            return Err(refused("is the state of another key; name another state file"));
        }
        if own != identity {
            return Err(refused(
                "is a copy, so that it may not know the last numbers that were used; make new keys",
            ));
        }
        (state.numbers, state.block) = (numbers, block);
        Ok(state)
    }

    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Replaces the numbers; they are on disk when this returns.
    pub(super) fn write(&mut self, numbers: Numbers) -> Result<(), KeysError> {
        let block = 1 - self.block;
        let line = line(&self.fingerprint, self.identity, numbers);
        let mut bytes = [b' '; BLOCK_BYTES];
        bytes[BLOCK_BYTES - 1] = b'\n';
        bytes[..line.len()].copy_from_slice(line.as_bytes());
        let at = block * BLOCK_BYTES as u64;
        let written = self.file.write_all_at(&bytes, at).and_then(|()| self.file.sync_data());
        written.map_err(|source| KeysError::File {
            doing: "write",
            path: self.path.clone(),
            source,
        })?;
        (self.block, self.numbers) = (block, numbers);
        Ok(())
    }

    /// Numbers of a block; `None` if it was not written as a whole.
    fn read(&self, block: u64) -> Option<Block> {
        let mut bytes = [0; BLOCK_BYTES];
        self.file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).ok()?;
        let text = str::from_utf8(&bytes).ok()?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [MAGIC, fingerprint, identity, sequence, iv, received, _] = words[..] else {
            return None;
        };
        let number = |word: &str| word.parse::<u64>().ok();
        let (sequence, iv, received) = (number(sequence)?, number(iv)?, number(received)?);
        let (identity, numbers) = (number(identity)?, Numbers { sequence, iv, received });
        let is_whole = text.trim_end() == line(fingerprint, identity, numbers);
        is_whole.then(|| Block { numbers, fingerprint: fingerprint.to_owned(), identity })
    }
}

/// A block as read. Later ones have higher numbers.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    numbers: Numbers,
    fingerprint: String,
    identity: u64,
}

fn line(fingerprint: &str, identity: u64, numbers: Numbers) -> String {
    let Numbers { sequence, iv, received } = numbers;
    let line = format!("{MAGIC} {fingerprint} {identity} {sequence} {iv} {received}");
    let sum = digest(&SHA256, line.as_bytes());
    let sum: String = sum.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{line} {sum}")
}

/// Inode and time of birth in one number: a copy has another, even if it takes a freed inode.
fn identity_of(metadata: &Metadata) -> u64 {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    metadata.ino().wrapping_add(born.map_or(0, |born| born.as_nanos() as u64))
}

fn missing(path: &Path, error: private_file::PrivateFileError) -> KeysError {
    match error {
        private_file::PrivateFileError::Open { source, .. }
            if source.kind() == io::ErrorKind::NotFound =>
        {
            let why = "is missing, and the keys were used before or are a day old, so that their last numbers \
                       are not known; make new keys for both ends";
            KeysError::Refused { path: path.to_owned(), why: why.to_owned() }
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const OF: &str = "00112233445566778899aabbccddeeff";

    fn refusal(path: &Path, of: &str, is_fresh: bool) -> String {
        State::open(path, of, is_fresh).expect_err("refused").to_string()
    }

    fn numbers(sequence: u64) -> Numbers {
        Numbers { sequence, iv: sequence + 7, received: 3 }
    }

    #[test]
    fn state_is_read_as_it_was_written_and_only_by_one_process_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        assert!(refusal(&path, OF, false).contains("is missing"));
        let mut state = State::open(&path, OF, true).unwrap();
        assert_eq!(state.numbers(), Numbers { sequence: 1, iv: 0, received: 0 });
        for sequence in [100, 200, 300] {
            state.write(numbers(sequence)).unwrap();
        }
        assert!(refusal(&path, OF, false).contains("in use by another"));
        drop(state);
        assert_eq!(State::open(&path, OF, false).unwrap().numbers(), numbers(300));
        // A key that seems fresh does not begin again where there is a state.
        assert_eq!(State::open(&path, OF, true).unwrap().numbers(), numbers(300));
        assert!(refusal(&path, "ff", false).contains("another key"));
        assert!(refusal(&path, "ff", true).contains("another key"));
        let copy = folder.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        assert!(refusal(&copy, OF, false).contains("is a copy"));
    }

    #[test]
    fn interrupted_write_leaves_the_numbers_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut state = State::open(&path, OF, true).unwrap();
        state.write(numbers(100)).unwrap();
        state.write(numbers(200)).unwrap();
        let at = state.block * BLOCK_BYTES as u64;
        for cut in 0..90 {
            state.file.write_all_at(b"9", at + cut).unwrap();
            let found = state.read(state.block);
            assert!(found.is_none_or(|found| found.numbers == numbers(200)), "byte {cut}");
        }
        drop(state);
        assert_eq!(State::open(&path, OF, false).unwrap().numbers(), numbers(100));
        fs::write(&path, vec![b'x'; 2 * BLOCK_BYTES]).unwrap();
        assert!(refusal(&path, OF, false).contains("is damaged"));
        fs::write(&path, []).unwrap();
        assert!(refusal(&path, OF, false).contains("is damaged"));
        // A first start that was interrupted.
        assert_eq!(State::open(&path, OF, true).unwrap().numbers().sequence, 1);
    }
}
