//! Reading of files that a user names: their author may be another one, and their size anything.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most `bytes_max` bytes.
///
/// Errors: it is larger. Nothing of such a file is read if its size is known; of a pipe or device, no more than the limit.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read_open(&File::open(path)?, bytes_max)
}

/// As [`read`], of a file that is open already.
pub fn read_open(file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder; name a file"));
    }
    if metadata.is_file() && metadata.len() > bytes_max {
        return Err(too_large(&format!("it has {} bytes", metadata.len()), bytes_max));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large("it does not end", bytes_max));
    }
    Ok(bytes)
}

/// As [`read`]. Errors: it is not text, too.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text(read(path, bytes_max)?)
}

/// The text of a file's bytes. Errors: they are not UTF-8, with the position.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let why = format!("it is not text (UTF-8) from byte {at}");
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

fn too_large(size: &str, bytes_max: u64) -> io::Error {
    let why = format!("{size}, and at most {bytes_max} bytes are read; is it the right file?");
    io::Error::new(io::ErrorKind::FileTooLarge, why)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_above_the_limit_are_refused_by_their_size_and_endless_ones_at_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "text").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "text");
        let said = read_text(&path, 3).unwrap_err().to_string();
        assert!(said.contains("4 bytes") && said.contains("at most 3"), "{said}");
        // More than the address space: refused unread.
        File::options().write(true).open(&path).unwrap().set_len(1 << 43).unwrap();
        assert_eq!(read(&path, 1 << 42).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let said = read(Path::new("/dev/zero"), 1 << 16).unwrap_err().to_string();
        assert!(said.contains("does not end"), "{said}");
        assert!(read(folder.path(), 10).unwrap_err().to_string().contains("folder"));
        fs::write(&path, b"ab\xff").unwrap();
        let said = read_text(&path, 10).unwrap_err().to_string();
        assert!(said.contains("from byte 2"), "{said}");
        assert!(read(&folder.path().join("none"), 10).is_err());
    }
}
