//! A process for code that untrusted input may take over: forked without another program, then shut off from
//! files, sockets, other processes and privileges.
//!
//! The C library's allocator and threads work in a child of a process with threads; locks of this program do not
//! if another thread held one. The child must use its own values only.
//!
//! Source: fork(2), namespaces(7), pivot_root(2), prctl(2) PR_SET_PDEATHSIG.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

use crate::child::{ChildUsage, die_with, reap_process};
use crate::pidfd::PidFd;
use crate::{capability, landlock, supervisor};

/// User and group that own no files: the kernel's overflow ids.
const UNPRIVILEGED: libc::uid_t = 65_534;
/// Status of a child whose body panicked, as of a program of Rust's.
const PANICKED: i32 = 101;

/// A forked process, with a socket to it. Drop kills and reaps it; so does the end of the thread that started it.
#[derive(Debug)]
pub struct Forked {
    pid: u32,
    pidfd: PidFd,
    socket: UnixStream,
    is_reaped: bool,
}

impl Forked {
    /// Forks; the child runs `body` in a session of its own, with all signal handlers forgotten, and exits with
    /// status 0 when it returns.
    pub fn start(body: impl FnOnce(&Inside)) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let parent = std::process::id();
        // SAFETY: see above: the child uses the allocator, its own values and no lock of this program, and ends
        // by _exit(2).
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ran = catch_unwind(AssertUnwindSafe(|| body(&Inside::new(parent, theirs.into()))));
            // SAFETY: ends this process without running destructors of the parent's values.
            unsafe { libc::_exit(if ran.is_ok() { 0 } else { PANICKED }) };
        }
        let pid = u32::try_from(pid).map_err(|_| io::Error::last_os_error())?;
        match PidFd::open(pid) {
            Ok(pidfd) => Ok(Forked { pid, pidfd, socket: ours, is_reaped: false }),
            Err(error) => {
                kill(pid);
                let _ = reap_process(pid as libc::pid_t);
                Err(error)
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Kills the process unless it ends within `timeout`, and reaps it.
    pub fn end(mut self, timeout: std::time::Duration) -> io::Result<(ExitStatus, ChildUsage)> {
        if !self.pidfd.has_ended_within(timeout)? {
            kill(self.pid);
        }
        self.is_reaped = true;
        let (status, usage) = reap_process(self.pid as libc::pid_t)?;
        Ok((ExitStatus::from_raw(status), usage))
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        if !self.is_reaped {
            kill(self.pid);
            // Fails only if it was reaped elsewhere.
            let _ = reap_process(self.pid as libc::pid_t);
        }
    }
}

fn kill(pid: u32) {
    // SAFETY: no memory is involved; a child that is not reaped keeps its id.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

#[derive(Debug)]
pub struct Inside {
    parent: u32,
    socket: OwnedFd,
    /// Descriptors of the parent, which are open here too.
    inherited: Vec<RawFd>,
}

impl Inside {
    fn new(parent: u32, socket: OwnedFd) -> Self {
        // SAFETY: no memory is involved. It cannot fail: a new process leads no group.
        unsafe { libc::setsid() };
        supervisor::forget_handlers();
        // Without it the socket's end still tells, but only where the child waits for it.
        let _ = die_with(parent);
        let inherited = open_descriptors(&socket);
        Inside { parent, socket, inherited }
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Closes what the parent had open, and gives up files, privileges and the view of the system: an empty root
    /// directory, a user without files, no capability, namespaces of its own, and Landlock where the kernel has it. The
    /// descriptors that were opened since the fork stay. Irrevocable; the process must have one thread.
    pub fn shut_off(&self) -> io::Result<()> {
        redirect_streams()?;
        for &fd in &self.inherited {
            // SAFETY: a descriptor of a value of the parent's, which this process neither uses nor drops.
            unsafe { libc::close(fd) };
        }
        if capability::effective_uid() == 0 {
            leave_files()?;
            become_unprivileged()?;
        }
        capability::keep(&[])?;
        capability::no_new_privileges()?;
        landlock::read_only(&[])?;
        // A change of user forgets the signal.
        die_with(self.parent)
    }
}

/// Descriptors that are open, without the standard streams and `kept`.
fn open_descriptors(kept: &OwnedFd) -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let listed: Vec<RawFd> = entries
        .filter_map(|entry: io::Result<fs::DirEntry>| {
            entry.ok()?.file_name().to_str()?.parse().ok()
        })
        .collect();
    // The list had a descriptor of its own, whose number is free again.
    // SAFETY: no memory is involved.
    let is_open = |fd: RawFd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    listed
        .into_iter()
        .filter(|&fd| fd > libc::STDERR_FILENO && fd != kept.as_raw_fd())
        .filter(|&fd| is_open(fd))
        .collect()
}

/// Puts /dev/null in place of the standard streams, which may be a terminal.
fn redirect_streams() -> io::Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    for stream in 0..=libc::STDERR_FILENO {
        // SAFETY: no memory is involved; both descriptors are this process's own.
        checked(unsafe { libc::dup2(null.as_raw_fd(), stream) })?;
    }
    Ok(())
}

/// Enters namespaces of its own and an empty, read-only root directory.
fn leave_files() -> io::Result<()> {
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::unshare(flags) })?;
    mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE)?;
    let barren = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // Its place is a folder that every Linux has; no other process sees this mount.
    mount(c"none", c"/proc", c"tmpfs", barren)?;
    // SAFETY: a string with its zero byte.
    checked(unsafe { libc::chdir(c"/proc".as_ptr()) })?;
    // SAFETY: strings with their zero bytes.
    let moved = unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) };
    if moved == 0 {
        // SAFETY: a string with its zero byte.
        checked(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    } else {
        // An initial RAM disk cannot be left by pivot_root(2).
        // SAFETY: a string with its zero byte.
        checked(unsafe { libc::chroot(c".".as_ptr()) })?;
    }
    // SAFETY: a string with its zero byte.
    checked(unsafe { libc::chdir(c"/".as_ptr()) })
}

/// Gives the calling process an empty /run in a mount namespace of its own. Neither allocates nor locks.
pub(crate) fn hide_run() -> io::Result<()> {
    // SAFETY: no memory is involved.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    mount(c"none", c"/", c"none", libc::MS_REC | libc::MS_PRIVATE)?;
    mount(c"none", c"/run", c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC)
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: strings with their zero bytes, which outlive the call; no data.
    let rc = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, none) };
    checked(rc)
}

fn become_unprivileged() -> io::Result<()> {
    // SAFETY: an empty list is not read.
    checked(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) })?;
    // SAFETY: no memory is involved.
    checked(unsafe { libc::setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) })?;
    // Refused where users may not make user namespaces; all that it adds is a second wall.
    // SAFETY: no memory is involved.
    unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    Ok(())
}

fn checked(rc: libc::c_int) -> io::Result<()> {
    if rc >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// Runs `body` in a child and returns what it writes to its socket, and its end.
    fn forked(body: impl FnOnce(&Inside) -> String) -> (String, ExitStatus) {
        let child = Forked::start(|inside| {
            let said = body(inside);
            // SAFETY: the bytes outlive the call.
            unsafe {
                libc::write(inside.socket().as_raw_fd(), said.as_ptr().cast(), said.len());
            }
        })
        .unwrap();
        let mut said = String::new();
        child.socket().read_to_string(&mut said).unwrap();
        (said, child.end(TEST_TIMEOUT).unwrap().0)
    }

    #[test]
    fn process_that_was_shut_off_has_no_files_no_rights_and_no_descriptors_of_its_parent() {
        if capability::effective_uid() != 0 {
            testkit::skip("root", "a mount namespace is made as root");
            return;
        }
        let open = fs::File::open("/proc/self/status").unwrap();
        let fd = open.as_raw_fd();
        let (said, status) = forked(|inside| {
            let own = fs::File::open("/proc/self/status").unwrap();
            inside.shut_off().unwrap();
            let mut status = String::new();
            // SAFETY: no memory is involved.
            let is_closed = unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0;
            (&own).read_to_string(&mut status).unwrap();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                line.split_whitespace().next().unwrap().to_owned()
            };
            let facts = [field("CapPrm:"), field("CapEff:"), field("NoNewPrivs:")].join(" ");
            let opened = ["/", "/etc/passwd", "/proc"].map(|path| fs::File::open(path).is_ok());
            format!("{is_closed} {facts} {opened:?} {}", status.contains("\t65534"))
        });
        let none = "0000000000000000";
        assert!(said.starts_with(&format!("true {none} {none} 1 [")), "{said}");
        assert!(said.contains("false, false]"), "{said}");
        assert!(status.success(), "{status}");
    }

    #[test]
    fn body_that_panics_ends_the_child_alone() {
        let (_, status) = forked(|_| panic!("as it should"));
        assert_eq!(status.code(), Some(PANICKED));
    }

    #[test]
    fn child_that_hangs_is_killed_and_reaped() {
        let child = Forked::start(|_| std::thread::sleep(Duration::from_secs(600))).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(PidFd::open(pid).is_err());
    }
}
