//! cpio archives as the kernel unpacks them.
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst, "newc".

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const CONSOLE: u32 = 0o020_600;
const TRAILER: &str = "TRAILER!!!";

/// An archive that is being written.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a folder.
    pub(super) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, [0, 0], &[]);
    }

    /// Adds a file.
    pub(super) fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) {
        self.entry(name, FILE | mode, [0, 0], bytes);
    }

    /// Adds the device that the kernel opens for the first process: character, 5:1.
    pub(super) fn console(&mut self, name: &str) {
        self.entry(name, CONSOLE, [5, 1], &[]);
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, [0, 0], &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: [u32; 2], bytes: &[u8]) {
        self.entries += 1;
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        let (len, name_len) = (bytes.len() as u32, name.len() as u32 + 1);
        let [major, minor] = device;
        // inode, mode, owner, group, links, time, size, device of the file, its own device,
        // length of the name, checksum
        let fields = [self.entries, mode, 0, 0, links, 0, len, 0, 0, major, minor, name_len, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    /// Names and contents start at multiples of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_110_bytes_of_header_and_start_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"#!/x\n");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[6 + 8..][..8], b"000081ed", "mode");
        assert_eq!(&bytes[6 + 6 * 8..][..8], b"00000005", "size");
        assert_eq!(&bytes[6 + 11 * 8..][..8], b"00000005", "length of the name");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..121], b"#!/x\n");
        assert_eq!(&bytes[124..130], b"070701");
        assert!(bytes[124 + 110..].starts_with(b"TRAILER!!!\0"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn device_numbers_stand_in_their_own_fields() {
        let mut archive = Archive::default();
        archive.console("dev/console");
        let bytes = archive.finish();
        assert_eq!(&bytes[6 + 8..][..8], b"00002180");
        assert_eq!(&bytes[6 + 9 * 8..][..16], b"0000000500000001");
    }
}
