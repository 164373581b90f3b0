//! A forked process that undoes a change when its owner ends, however that happens.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::socket;

/// How long requests are repeated that found nothing to act on, and how often.
///
/// A driver that gives up an AF_XDP socket's memory disables its NAPI instances for a moment, and the kernel
/// does not find them meanwhile. It does so after the owner has closed its sockets, so at the same time as the
/// keeper works, or when the next owner begins.
pub const REPEATED_FOR: Duration = Duration::from_secs(2);
pub const REPEATED_EVERY: Duration = Duration::from_millis(5);

/// A forked process that waits for the end of its owner.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// The owner's end of a pipe: its last close is the signal.
    pipe: Option<OwnedFd>,
    pid: libc::pid_t,
}

impl Keeper {
    /// - `undo`: runs in the forked process. It may make system calls only: locks of the owner's other
    ///   threads are held for ever there.
    pub(crate) fn start(undo: impl FnOnce()) -> io::Result<Keeper> {
        let mut ends = [0; 2];
        // SAFETY: the array has room for both descriptors.
        let rc = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        let [reading, writing] = ends.map(|fd| {
            // SAFETY: pipe2(2) returned new descriptors without another owner.
            unsafe { OwnedFd::from_raw_fd(fd) }
        });
        // SAFETY: the child makes system calls only and never returns.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            wait_until_alone(reading.as_raw_fd(), writing.as_raw_fd());
            undo();
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        Ok(Keeper { pipe: Some(writing), pid })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.pipe = None;
        // SAFETY: the process is a child of this one that is waited for only here.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// Returns when the last writer of the pipe has ended.
fn wait_until_alone(reading: RawFd, writing: RawFd) {
    // A signal of the terminal is for the owner, which ends in its own time.
    // SAFETY: no memory is involved.
    unsafe { libc::setsid() };
    // SAFETY: the child's own copy, which would keep the pipe open.
    unsafe { libc::close(writing) };
    let mut byte = 0u8;
    loop {
        // SAFETY: one byte may be written to `byte`.
        let got = unsafe { libc::read(reading, (&raw mut byte).cast(), 1) };
        let error = io::Error::last_os_error().raw_os_error();
        if got >= 0 || error != Some(libc::EINTR) {
            break;
        }
    }
}

/// Netlink messages that are sent when this value is dropped, and also when its owner is killed or has
/// given up its capabilities.
#[derive(Debug)]
#[must_use = "the messages are sent when this is dropped"]
pub struct SentAtEnd {
    _keeper: Keeper,
}

impl SentAtEnd {
    /// - `protocol`: such as NETLINK_GENERIC.
    /// - `messages`: complete requests for an answer (NLM_F_ACK), sent in order to the calling thread's network
    ///   namespace. One that finds nothing to act on is repeated for a while.
    pub fn hold(protocol: i32, messages: &[Vec<u8>]) -> io::Result<Self> {
        let socket = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        // The owner's copy is closed by drop; that of the keeper lives as long as it.
        let socket = socket.as_fd();
        let keeper = Keeper::start(|| {
            let end = Instant::now() + REPEATED_FOR;
            for message in messages {
                while request(socket, message) == Some(-libc::ENOENT) && Instant::now() < end {
                    std::thread::sleep(REPEATED_EVERY);
                }
            }
        })?;
        Ok(SentAtEnd { _keeper: keeper })
    }
}

/// Sends a netlink request by plain system calls. Returns the kernel's answer: 0, or a negative error number.
fn request(socket: BorrowedFd<'_>, message: &[u8]) -> Option<i32> {
    // SAFETY: the pointer and the length describe the message.
    unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    // struct nlmsghdr, and the first field of struct nlmsgerr. The kernel has answered when send(2) returns.
    let mut answer = [0; 20];
    let got_bytes = socket::receive_now(socket, &mut answer).ok()?;
    let (_, error) = answer.split_last_chunk()?;
    (got_bytes == answer.len()).then(|| i32::from_ne_bytes(*error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a byte by a plain system call.
    fn write(fd: BorrowedFd<'_>) {
        // SAFETY: one byte is read from a constant.
        unsafe { libc::write(fd.as_raw_fd(), c"x".as_ptr().cast(), 1) };
    }

    #[test]
    fn the_keeper_undoes_when_its_owner_ends_and_not_before() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let keeper = Keeper::start(|| write(writer.as_fd())).unwrap();
        let process = format!("/proc/{}", keeper.pid);
        let ready = || socket::wait(reader.as_fd(), false, Duration::ZERO).unwrap().readable;
        assert!(std::path::Path::new(&process).exists() && !ready());
        drop(keeper);
        assert!(!std::path::Path::new(&process).exists() && ready());
        std::io::Read::read_exact(&mut reader, &mut [0]).unwrap();
    }
}
