//! Descriptors of a forked process. Everything here makes system calls only.

use std::os::fd::RawFd;

/// Closes all descriptors except `kept`; negative ones are ignored.
pub(crate) fn close_all_but<const N: usize>(mut kept: [RawFd; N]) {
    kept.sort_unstable();
    let mut first = 0;
    for fd in kept.into_iter().filter(|fd| *fd >= 0).map(|fd| fd as u32) {
        if fd > first {
            close_range(first, fd - 1);
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX);
}

fn close_range(first: u32, last: u32) {
    // SAFETY: no memory is involved. Owners of these descriptors in this process are never dropped.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if rc == 0 {
        return;
    }
    // Before Linux 5.9.
    // SAFETY: no memory is involved.
    let highest = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    for fd in first..=last.min(u32::try_from(highest).unwrap_or(1024)) {
        // SAFETY: as above; one that is not open is no error here.
        unsafe { libc::close(fd as RawFd) };
    }
}
