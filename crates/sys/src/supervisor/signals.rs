//! Signals of a supervisor: nothing here allocates.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

/// Descriptor that is readable when a child has ended. SIGCHLD must be blocked.
pub(super) fn child_signals() -> io::Result<File> {
    let mut set = no_signals();
    // SAFETY: the set is initialised and the signal exists.
    unsafe { libc::sigaddset(&mut set, libc::SIGCHLD) };
    // SAFETY: the set is initialised and outlives the call.
    let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd(2) returned a new descriptor without another owner.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Sets all signals to their default, except those that the owner ignores; a child that ends must not be
/// ignored, or it cannot be waited for.
pub(crate) fn forget_handlers() {
    for signal in 1..=64 {
        // SAFETY: all-zero is a valid sigaction of plain C types.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null pointer stands for no change; `action` may be written.
        let rc = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
        let is_kept = action.sa_sigaction == libc::SIG_IGN
            && signal != libc::SIGCHLD
            && signal != libc::SIGPIPE;
        if rc == 0 && !is_kept {
            // SAFETY: the default action runs no code of this program.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}

pub(super) fn all_signals() -> libc::sigset_t {
    let mut set = no_signals();
    // SAFETY: the set may be written.
    unsafe { libc::sigfillset(&mut set) };
    set
}

pub(super) fn no_signals() -> libc::sigset_t {
    // SAFETY: all-zero is a valid sigset_t, a plain C struct of integers.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set may be written.
    unsafe { libc::sigemptyset(&mut set) };
    set
}

/// Sets the blocked signals of the calling thread; returns those before.
pub(super) fn set_signals_blocked(set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = no_signals();
    // SAFETY: both sets are initialised and outlive the call, which cannot fail with valid arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, &mut before) };
    before
}

pub(super) fn drain(mut signals: &File) {
    let mut buffer = [0; 1024];
    while signals.read(&mut buffer).is_ok_and(|len| len == buffer.len()) {}
}
