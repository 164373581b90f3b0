//! Waiting for several descriptors at once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Descriptors that can be waited for at once.
pub const FDS_MAX: usize = 8;

/// Waits until one of `fds` is readable, at most `timeout`; returns how many are. A signal ends
/// the wait early with none.
///
/// # Panics
/// With more than [`FDS_MAX`] of them.
pub fn readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<usize> {
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; FDS_MAX];
    let polled = &mut polled[..fds.len()];
    for (poll, fd) in polled.iter_mut().zip(fds) {
        poll.fd = fd.as_raw_fd();
    }
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as _,
    };
    // SAFETY: pointer and count describe `polled`; the timeout is valid; no signal mask.
    let rc = unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &timeout, std::ptr::null())
    };
    if rc >= 0 {
        return Ok(rc as usize);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_one_that_has_something_ends_the_wait() {
        let (quiet, _keep) = io::pipe().unwrap();
        let (loud, mut writer) = io::pipe().unwrap();
        let fds = [quiet.as_fd(), loud.as_fd()];
        assert_eq!(readable(&fds, Duration::ZERO).unwrap(), 0);
        writer.write_all(&[1]).unwrap();
        assert_eq!(readable(&fds, Duration::from_secs(60)).unwrap(), 1);
    }
}
