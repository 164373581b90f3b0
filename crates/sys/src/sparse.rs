//! Files with holes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Frees the space of the bytes from `from` to `to`, which read as zeros then. The length stays.
///
/// # Errors
/// EOPNOTSUPP of a file system without holes; EBADF of a file that is not open for writing.
pub fn free(file: &File, from: u64, to: u64) -> io::Result<()> {
    if to <= from {
        return Ok(());
    }
    let (offset, len) = (file_offset(from)?, file_offset(to - from)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the call takes numbers only.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn file_offset(bytes: u64) -> io::Result<libc::off_t> {
    bytes.try_into().map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn freed_bytes_take_no_space_and_the_length_stays() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let before = file.metadata().unwrap();
        match free(&file, 4096, 1 << 20) {
            Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return testkit::skip("kernel", "the file system has no holes");
            }
            freed => freed.unwrap(),
        }
        let after = file.metadata().unwrap();
        assert_eq!(after.len(), before.len());
        assert!(after.blocks() < before.blocks(), "{} {}", after.blocks(), before.blocks());
        free(&file, 5, 5).unwrap();
    }
}
