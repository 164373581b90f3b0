//! Descriptors of processes: signals and waits that a reused process id cannot misdirect.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::socket;

/// Descriptor of a process; readable in a poll once the process has ended.
///
/// Source: pidfd_open(2), since Linux 5.3.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Errors: ESRCH if there is no such process.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let Ok(fd @ 0..) = i32::try_from(fd) else {
            return Err(io::Error::last_os_error());
        };
        // SAFETY: the kernel returned a new descriptor without another owner.
        Ok(PidFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal to this process, and to no other that has its id by now.
    ///
    /// Errors: ESRCH if it has ended and was reaped.
    pub fn send(&self, signal: i32) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        let fd = self.0.as_raw_fd();
        // SAFETY: no memory is involved: the pointer is null, which stands for a plain kill(2).
        let rc = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, no_info, 0) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits at most `timeout` for the end; true if the process has ended. A signal ends the wait early.
    pub fn has_ended_within(&self, timeout: Duration) -> io::Result<bool> {
        Ok(socket::wait(self.as_fd(), false, timeout)?.readable)
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn a_signal_ends_the_process_and_the_descriptor_shows_it() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pidfd = PidFd::open(child.id()).unwrap();
        assert!(!pidfd.has_ended_within(Duration::ZERO).unwrap());
        pidfd.send(libc::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(pidfd.has_ended_within(Duration::ZERO).unwrap());
        assert_eq!(pidfd.send(libc::SIGTERM).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(PidFd::open(u32::MAX / 2).is_err());
    }
}
