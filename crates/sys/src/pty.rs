//! Pseudo-terminals, to capture output that a program prints to a terminal.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

#[derive(Debug)]
pub struct Pty {
    /// Side of the terminal emulator; reading fails with EIO after the other side is closed.
    pub master: File,
    /// Side of the program.
    pub terminal: File,
}

impl Pty {
    /// Opens a pseudo-terminal that does not become a controlling terminal.
    ///
    /// Source: pty(7), ioctl_tty(2).
    pub fn open() -> io::Result<Self> {
        let master = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open("/dev/ptmx")?;
        let unlock: libc::c_int = 0;
        // SAFETY: TIOCSPTLCK reads an int, which lives through the call.
        let rc = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &unlock) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        // Not by name: /dev/pts may belong to another namespace.
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: TIOCGPTPEER takes flags and no pointer.
        let fd = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel returned a new descriptor without another owner.
        let terminal = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Pty { master, terminal: terminal.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn what_is_printed_comes_out_and_the_end_is_told() {
        let Pty { mut master, mut terminal } = Pty::open().unwrap();
        terminal.write_all(b"2330 995\n").unwrap();
        let mut seen = [0; 64];
        let bytes = master.read(&mut seen).unwrap();
        // A terminal prints \r\n.
        assert_eq!(&seen[..bytes], b"2330 995\r\n");
        drop(terminal);
        assert_eq!(master.read(&mut seen).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
}
