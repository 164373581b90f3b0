//! Network namespaces held by a descriptor, without a name.
//!
//! A namespace made here appears in no directory: the kernel removes it and its interfaces when
//! the last descriptor, socket or thread that uses it is closed, however the process ended.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;

use thiserror::Error;

use crate::capability::effective_uid;

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
    #[error(
        "cannot open network namespace {}: `ip netns list` shows those with a name", path.display()
    )]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a network namespace", path.display())]
    NotANamespace { path: PathBuf },
    #[error(
        "{} is a symbolic link that user {uid} made: name the file that it points to", path.display()
    )]
    ForeignLink { path: PathBuf, uid: u32 },
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

    pub fn current() -> Result<Self, NetnsError> {
        Self::open(OWN)
    }

    /// Opens a namespace by file, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// The file may be any: opening it must not arm a watchdog, rewind a tape or wait for the other end
    /// of a pipe. So it is opened as a path alone, and again for reading once it is known to be a
    /// namespace. A symbolic link is followed if it is the kernel's, root's or the caller's.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref();
        let failed = |source| NetnsError::Open { path: path.to_owned(), source };
        let open =
            |flags| OpenOptions::new().read(true).custom_flags(libc::O_PATH | flags).open(path);
        let mut found = open(libc::O_NOFOLLOW).map_err(failed)?;
        let metadata = found.metadata().map_err(failed)?;
        if metadata.is_symlink() {
            let is_trusted = metadata.uid() == 0 || metadata.uid() == effective_uid();
            if !is_trusted && !is_on_procfs(&found).map_err(failed)? {
                return Err(NetnsError::ForeignLink { path: path.to_owned(), uid: metadata.uid() });
            }
            found = open(0).map_err(failed)?;
        }
        let not_a_namespace = || NetnsError::NotANamespace { path: path.to_owned() };
        let namespaces = NetnsId::of_file(OWN.as_ref()).map_err(failed)?.device;
        if found.metadata().map_err(failed)?.dev() != namespaces {
            return Err(not_a_namespace());
        }
        let again = format!("/proc/thread-self/fd/{}", found.as_raw_fd());
        let fd = OwnedFd::from(File::open(again).map_err(failed)?);
        // SAFETY: NS_GET_NSTYPE takes no argument and writes no memory.
        let kind = unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) };
        if kind != libc::CLONE_NEWNET {
            return Err(not_a_namespace());
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
        // Entering takes a right that the caller's own namespace does not need.
        if NetnsId::of_file(OWN.as_ref()).ok() == Some(self.id()?) {
            return on_own_thread(body);
        }
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

    /// Identity of the namespace while it exists; the kernel reuses it afterwards.
    pub fn id(&self) -> Result<NetnsId, NetnsError> {
        self.fd
            .try_clone()
            .and_then(|fd| File::from(fd).metadata())
            .map(|found| NetnsId { device: found.dev(), inode: found.ino() })
            .map_err(|source| NetnsError::of("identifying a network namespace", source))
    }

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

/// Device and inode number of a namespace's file, equal for all files of one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetnsId {
    /// The same for all namespaces of a kernel.
    pub device: u64,
    pub inode: u64,
}

impl NetnsId {
    /// Identity of any file, without opening it or asking its file system for news: neither a device nor a
    /// server that does not answer is touched.
    ///
    /// Source: statx(2), AT_STATX_DONT_SYNC.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: all-zero is a valid statx, a plain C struct of integers.
        let mut found: libc::statx = unsafe { std::mem::zeroed() };
        // SAFETY: the path is a valid C string, and the struct may be written.
        let rc = unsafe {
            libc::statx(
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::AT_STATX_DONT_SYNC,
                libc::STATX_INO,
                &mut found,
            )
        };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(NetnsId { device, inode: found.stx_ino })
    }
}

/// Number of the calling thread's namespace that the kernel does not reuse before a reboot.
///
/// Source: SO_NETNS_COOKIE of linux/net.h, since Linux 5.14.
pub fn cookie() -> io::Result<u64> {
    let socket = UnixDatagram::unbound()?;
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the option is a u64; the value and its length may be written.
    let rc = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &mut len,
        )
    };
    if rc == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// Source: asm-generic/socket.h.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// True for a link that the kernel made, such as `/proc/PID/ns/net`.
///
/// Source: fstatfs(2).
fn is_on_procfs(file: &File) -> io::Result<bool> {
    // SAFETY: all-zero is a valid statfs, a plain C struct of integers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, and the struct may be written.
    let rc = unsafe { libc::fstatfs(file.as_raw_fd(), &mut found) };
    if rc == 0 {
        Ok(found.f_type == libc::PROC_SUPER_MAGIC)
    } else {
        Err(io::Error::last_os_error())
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
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Duration;

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
    fn files_are_not_opened_before_they_are_known_to_be_namespaces() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Opening one end of a pipe for reading waits for the other.
        let (done, is_done) = mpsc::channel();
        let asked = pipe.clone();
        thread::spawn(move || done.send(Netns::open(asked).map(drop)));
        let refused = is_done.recv_timeout(Duration::from_secs(10)).expect("does not wait");
        assert!(matches!(refused, Err(NetnsError::NotANamespace { .. })), "{refused:?}");

        // Opening a device node calls its driver: this one has none, which ENXIO would say.
        let node = folder.path().join("node");
        let made = Command::new("mknod").arg(&node).args(["c", "511", "511"]).status();
        assert!(made.unwrap().success());
        let opened = File::open(&node).unwrap_err();
        assert!(matches!(opened.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)), "{opened}");
        let refused = Netns::open(&node).unwrap_err();
        assert!(matches!(refused, NetnsError::NotANamespace { .. }), "{refused}");
    }

    #[test]
    fn links_of_other_users_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let made = Netns::new().unwrap();
        let file = format!("/proc/{}/fd/{}", std::process::id(), made.as_fd().as_raw_fd());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Netns::open(&link).unwrap().id().unwrap(), made.id().unwrap());
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        let refused = Netns::open(&link).unwrap_err();
        assert!(matches!(refused, NetnsError::ForeignLink { uid: 65_534, .. }), "{refused}");
    }

    #[test]
    fn identity_is_known_without_opening_the_file_and_the_cookie_is_never_reused() {
        let made = Netns::new().unwrap();
        let file = format!("/proc/self/fd/{}", made.as_fd().as_raw_fd());
        let id = made.id().unwrap();
        assert_eq!(NetnsId::of_file(file.as_ref()).unwrap(), id);
        assert_eq!(id.inode, made.inode().unwrap());
        let own = NetnsId::of_file(OWN.as_ref()).unwrap();
        assert_eq!(own.device, id.device);
        assert_ne!(own, id);
        let inside = made.run(cookie).unwrap().unwrap();
        assert_ne!(inside, cookie().unwrap());
        assert_eq!(made.run(cookie).unwrap().unwrap(), inside);
        drop(made);
        assert_ne!(Netns::new().unwrap().run(cookie).unwrap().unwrap(), inside);
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
