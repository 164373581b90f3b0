//! Network namespaces held by a descriptor, without a name.
//!
//! A namespace made here appears in no directory: the kernel removes it and its interfaces when
//! the last descriptor, socket or thread that uses it is closed, however the process ended.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use thiserror::Error;

const OWN: &str = "/proc/thread-self/ns/net";

#[derive(Debug, Error)]
pub enum NetnsError {
    #[error(
        "{what} needs CAP_SYS_ADMIN: run as root, or grant it with \
         `sudo setcap cap_sys_admin,cap_net_admin,cap_net_raw+ep PROGRAM`"
    )]
    Denied {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// The file does not exist or cannot be opened.
    #[error(
        "cannot open network namespace {}: `ip netns list` shows those with a name", path.display()
    )]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is no network namespace.
    #[error("{} is not a network namespace", path.display())]
    NotANamespace { path: PathBuf },
    /// Any other error, such as a kernel without namespaces or a failed thread start.
    #[error("{what} failed")]
    Failed {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

impl NetnsError {
    fn of(what: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => NetnsError::Denied { what, source },
            _ => NetnsError::Failed { what, source },
        }
    }
}

/// A network namespace, alive as long as this descriptor.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
}

impl Netns {
    /// Creates an empty namespace: one loopback interface, down.
    ///
    /// The calling thread does not change its namespace.
    ///
    /// Source: unshare(2), CLONE_NEWNET; network_namespaces(7).
    pub fn new() -> Result<Self, NetnsError> {
        on_own_thread(|| {
            // SAFETY: no memory is involved; only this short-lived thread changes namespace.
            let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            if rc != 0 {
                let source = io::Error::last_os_error();
                return Err(NetnsError::of("making a network namespace", source));
            }
            Self::current()
        })?
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open(OWN)
    }

    /// Opens a namespace by file, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref();
        let file = File::open(path)
            .map_err(|source| NetnsError::Open { path: path.to_owned(), source })?;
        let fd = OwnedFd::from(file);
        // SAFETY: NS_GET_NSTYPE takes no argument and writes no memory.
        let kind = unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) };
        if kind != libc::CLONE_NEWNET {
            return Err(NetnsError::NotANamespace { path: path.to_owned() });
        }
        Ok(Netns { fd })
    }

    /// Runs `body` on a thread of its own inside this namespace and returns its result.
    ///
    /// Sockets and other descriptors that `body` opens stay in this namespace and may be used from
    /// any thread. A panic of `body` propagates to the caller. The thread ends with the call, so
    /// `body` must not start anything that ends with its thread (such as a child process with a
    /// parent-death signal).
    pub fn run<R: Send>(&self, body: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
        on_own_thread(|| {
            self.enter()
                .map_err(|source| NetnsError::of("entering a network namespace", source))?;
            Ok(body())
        })?
    }

    /// Moves the calling thread into this namespace.
    ///
    /// Does not allocate, so that it may run between fork and exec.
    ///
    /// Source: setns(2).
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: no memory is involved; the descriptor is open.
        let rc = unsafe { libc::setns(self.fd.as_raw_fd(), libc::CLONE_NEWNET) };
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Inode number of the namespace, equal for all descriptors of the same namespace.
    pub fn inode(&self) -> Result<u64, NetnsError> {
        self.fd
            .try_clone()
            .and_then(|fd| File::from(fd).metadata())
            .map(|metadata| metadata.ino())
            .map_err(|source| NetnsError::of("reading the inode of a network namespace", source))
    }

    /// A second descriptor of the same namespace.
    pub fn try_clone(&self) -> Result<Self, NetnsError> {
        self.fd
            .try_clone()
            .map(|fd| Netns { fd })
            .map_err(|source| NetnsError::of("duplicating a descriptor", source))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `_IO(0xb7, 3)`; the value is the same on every architecture that Linux's generic ioctl
/// encoding serves.
///
/// Source: linux/nsfs.h.
const NS_GET_NSTYPE: libc::Ioctl = 0xb703;

/// Runs `body` on a new thread and propagates its panic.
fn on_own_thread<R: Send>(body: impl FnOnce() -> R + Send) -> Result<R, NetnsError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, body)
            .map_err(|source| NetnsError::of("starting a thread", source))?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_new_namespace_is_another_one_and_the_caller_stays() {
        let before = Netns::current().unwrap().inode().unwrap();
        let made = Netns::new().unwrap();
        assert_ne!(made.inode().unwrap(), before);
        assert_eq!(Netns::current().unwrap().inode().unwrap(), before);
        let inside = made.run(|| Netns::current().unwrap().inode().unwrap()).unwrap();
        assert_eq!(inside, made.inode().unwrap());
        assert_eq!(made.try_clone().unwrap().inode().unwrap(), inside);
    }

    #[test]
    fn a_new_namespace_has_loopback_alone_and_down() {
        let made = Netns::new().unwrap();
        let table = made.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
        assert_eq!(table.unwrap().lines().skip(2).count(), 1);
        let sent = made.run(|| UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", "127.0.0.1:9"));
        assert!(sent.unwrap().is_err());
    }

    #[test]
    fn a_panic_inside_goes_on_outside() {
        let made = Netns::new().unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            made.run(|| panic!("inside")).unwrap();
        }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "inside");
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        let missing = Netns::open("/run/netns/there-is-none").unwrap_err();
        assert!(matches!(missing, NetnsError::Open { .. }), "{missing}");
        let plain = Netns::open("/proc/self/status").unwrap_err();
        assert!(matches!(plain, NetnsError::NotANamespace { .. }), "{plain}");
        let other = Netns::open("/proc/self/ns/uts").unwrap_err();
        assert!(matches!(other, NetnsError::NotANamespace { .. }), "{other}");
    }

    #[test]
    fn without_the_capability_the_message_names_it() {
        let error = thread::spawn(|| {
            crate::capability::keep(&[]).unwrap();
            Netns::new().unwrap_err()
        })
        .join()
        .unwrap();
        assert!(matches!(error, NetnsError::Denied { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("CAP_SYS_ADMIN") && text.contains("setcap"), "{text}");
    }
}
