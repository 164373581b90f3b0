//! Waiting for several descriptors at once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Most descriptors of one wait.
pub const FDS_MAX: usize = 64;

/// Waits at most `timeout` until one of `fds` is readable; returns how many are. A signal ends the
/// wait early with 0.
///
/// # Panics
/// With more than [`FDS_MAX`] of them.
pub fn readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<usize> {
    Ok(readable_set(fds, timeout)?.count_ones() as usize)
}

/// As [`readable`]; returns which, as a set of bits: bit `i` for `fds[i]`.
pub fn readable_set(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<u64> {
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
        let bits = (0..).zip(polled.iter()).filter(|(_, poll)| poll.revents != 0);
        return Ok(bits.fold(0, |set, (i, _)| set | 1 << i));
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
        assert_eq!(readable_set(&fds, Duration::from_secs(60)).unwrap(), 0b10);
    }
}
