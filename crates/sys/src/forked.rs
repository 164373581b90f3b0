//! A process of this program's own, forked without another executable, that ends when its owner ends.
//!
//! The owner may have threads that held a lock when it forked, and those locks are held for ever in the new process:
//! its body makes system calls and computes with memory that was allocated before. It neither allocates nor locks.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::descriptors::close_all_but;
use crate::pidfd::PidFd;
use crate::supervisor::forget_handlers;

/// Descriptors that a body may work with.
const NEEDED_MAX: usize = 6;
/// Limit for the process to end once its connection is closed; then it is killed.
const END_MAX: Duration = Duration::from_secs(2);

/// The process, seen by its owner. Dropping it ends it.
#[derive(Debug)]
pub struct Forked {
    pid: libc::pid_t,
    pidfd: PidFd,
    connection: UnixStream,
}

/// The owner, seen by the process.
#[derive(Debug)]
pub struct ForkedOwner {
    process: PidFd,
    connection: UnixStream,
}

impl ForkedOwner {
    /// Readable when the owner says something, or has closed it.
    pub fn connection(&self) -> &UnixStream {
        &self.connection
    }

    /// Readable when the owner's process has ended.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }
}

impl Forked {
    /// Starts the process.
    ///
    /// - `name`: as tools show it, at most 15 bytes.
    /// - `needed`: descriptors that `body` works with; all others are closed.
    /// - `body`: returns when the owner has ended or closed the connection; see the module's rules.
    ///
    /// Errors: no process or descriptor can be made; InvalidInput with too many descriptors.
    pub fn start(
        name: &CStr,
        needed: &[BorrowedFd<'_>],
        body: impl FnOnce(&ForkedOwner),
    ) -> io::Result<Self> {
        if needed.len() > NEEDED_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let owner = PidFd::open(std::process::id())?;
        let (connection, theirs) = UnixStream::pair()?;
        let mut kept: [RawFd; NEEDED_MAX + 2] = [-1; NEEDED_MAX + 2];
        let all = [owner.as_fd(), theirs.as_fd()];
        for (kept, fd) in kept.iter_mut().zip(all.iter().chain(needed)) {
            *kept = fd.as_raw_fd();
        }
        let owner = ForkedOwner { process: owner, connection: theirs };
        // SAFETY: the child runs the lines below alone and never returns.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            forget_handlers();
            // A signal of the terminal is for the owner, which ends in its own time.
            // SAFETY: no memory is involved.
            unsafe { libc::setsid() };
            // SAFETY: the name is a string that outlives the call.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            close_all_but(kept);
            // A panic must not run the destructors of the owner's values.
            let ended = catch_unwind(AssertUnwindSafe(|| body(&owner)));
            // SAFETY: ends the process without running the owner's destructors.
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        }
        match PidFd::open(pid as u32) {
            Ok(pidfd) => Ok(Forked { pid, pidfd, connection }),
            Err(error) => {
                // SAFETY: the process is a child of this one that is waited for only here.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                reap(pid);
                Err(error)
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Connection to the process; it ends when the process has ended.
    pub fn connection(&self) -> &UnixStream {
        &self.connection
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.connection.shutdown(std::net::Shutdown::Both);
        let deadline = Instant::now() + END_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.pidfd.has_ended_within(left) {
                Ok(true) => break,
                Ok(false) if !left.is_zero() => {}
                Ok(false) | Err(_) => {
                    // SAFETY: no memory is involved; a child that is not reaped keeps its id.
                    unsafe { libc::kill(self.pid, libc::SIGKILL) };
                    break;
                }
            }
        }
        reap(self.pid);
    }
}

/// Waits for a child that has ended or is about to.
fn reap(pid: libc::pid_t) {
    // SAFETY: a null pointer stands for no status; the child is waited for only here.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn the_process_answers_its_owner_and_ends_with_the_connection() {
        let forked = Forked::start(c"wp-test", &[], |owner| {
            let mut byte = [0];
            while let Ok(1) = owner.connection().read(&mut byte) {
                let _ = owner.connection().write_all(&[byte[0] + 1]);
            }
        })
        .unwrap();
        let mut byte = [6];
        forked.connection().write_all(&byte).unwrap();
        forked.connection().read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
        let process = format!("/proc/{}", forked.pid());
        assert!(std::path::Path::new(&process).exists());
        drop(forked);
        assert!(!std::path::Path::new(&process).exists());
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let forked = Forked::start(c"wp-test", &[], |_| {
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        })
        .unwrap();
        let process = format!("/proc/{}", forked.pid());
        drop(forked);
        assert!(!std::path::Path::new(&process).exists());
    }
}
