//! Files in memory.
//!
//! Source: memfd_create(2), "File sealing" in fcntl(2).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes a file with these bytes that no process can change, and that programs started later inherit as descriptor.
pub fn inherited(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; the call reads no other memory.
    let fd = unsafe { libc::memfd_create(c"wirepath".as_ptr(), libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and owned by no other value.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(bytes)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no memory is involved.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if sealed < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_there_and_cannot_be_changed() {
        let fd = inherited(b"image").unwrap();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        assert_eq!(std::fs::read(&path).unwrap(), b"image");
        let mut file = File::from(fd);
        assert!(file.write_all(b"more").is_err());
        assert!(file.set_len(0).is_err());
    }
}
