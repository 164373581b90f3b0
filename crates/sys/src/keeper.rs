//! A forked process that undoes a change when its owners end, however that happens.
//!
//! A change of a device has a name in its network namespace, an abstract Unix socket on which the process listens.
//! A further owner of the same change, in this process or another, joins it: the change is undone when the last
//! owner has ended. Without that the second would take the first one's change for the former state, and restore it.

use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use crate::descriptors::close_all_but;
use crate::socket;

/// How long requests are repeated that found nothing to act on, and how often.
///
/// A driver that gives up an AF_XDP socket's memory disables its NAPI instances for a moment, and the kernel
/// does not find them meanwhile. It does so after the owner has closed its sockets, so at the same time as the
/// keeper works, or when the next owner begins.
pub const REPEAT_TIMEOUT: Duration = Duration::from_secs(2);
pub const REPEAT_INTERVAL: Duration = Duration::from_millis(5);

/// How long a new owner waits for a keeper that is undoing the change.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(5);
/// Owners beside the first.
const OWNERS_MAX: usize = 14;
/// Sent to an owner that has ended before the last one.
const OTHERS: u8 = 0;

/// One of the owners of a change.
#[derive(Debug)]
pub struct Owner {
    connection: UnixStream,
    /// If this process has forked the keeper.
    keeper: Option<libc::pid_t>,
}

impl Drop for Owner {
    /// Returns when the change is undone, or at once if there are other owners.
    fn drop(&mut self) {
        let mut answer = [0];
        // Errors: the keeper was killed.
        let _ = self.connection.shutdown(Shutdown::Write);
        let has_others = matches!(self.connection.read(&mut answer), Ok(1));
        if let Some(pid) = self.keeper.filter(|_| !has_others) {
            // SAFETY: the process is a child of this one that is waited for only here.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
    }
}

/// Answer to a claim: the side that makes the change.
#[derive(Debug)]
pub enum Claim {
    /// The caller: it reads the former state, has it kept, and makes the change.
    New(KeeperPlace),
    /// Another owner did, or is doing so now.
    Joined(Owner),
}

/// The right to a change.
#[derive(Debug)]
pub struct KeeperPlace {
    listener: UnixListener,
    kind: u8,
}

/// Claims a change in the network namespace of the calling thread.
///
/// - `name`: of the change, such as of settings of one interface.
/// - `kind`: from 1; owners share a change of the same kind only.
///
/// Errors: ResourceBusy if the change has an owner of another kind or of another user, or too many owners.
pub fn claim(name: &str, kind: u8) -> io::Result<Claim> {
    claim_within(CLAIM_TIMEOUT, name, kind)
}

fn claim_within(limit: Duration, name: &str, kind: u8) -> io::Result<Claim> {
    let address = SocketAddr::from_abstract_name(format!("wirepath/{name}"))?;
    let end = Instant::now() + limit;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Claim::New(KeeperPlace { listener, kind })),
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
        let left = end.saturating_duration_since(Instant::now());
        match join(&address, left)? {
            Some((connection, found)) if found == kind => {
                return Ok(Claim::Joined(Owner { connection, keeper: None }));
            }
            Some(_) => return Err(io::ErrorKind::ResourceBusy.into()),
            None if left.is_zero() => return Err(io::ErrorKind::ResourceBusy.into()),
            None => std::thread::sleep(REPEAT_INTERVAL),
        }
    }
}

/// Returns the connection and the kind of the change, or `None` if the keeper has just ended.
fn join(address: &SocketAddr, wait: Duration) -> io::Result<Option<(UnixStream, u8)>> {
    let Ok(mut connection) = connect(address) else { return Ok(None) };
    if !is_trusted(connection.as_fd()) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let mut kind = [0];
    if !socket::wait(connection.as_fd(), false, wait)?.readable {
        return Ok(None);
    }
    Ok(matches!(connection.read(&mut kind), Ok(1)).then_some((connection, kind[0])))
}

/// Connects without waiting for a listener that accepts nothing.
fn connect(address: &SocketAddr) -> io::Result<UnixStream> {
    let fd = socket::open(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    // SAFETY: all-zero is a valid sockaddr_un, plain C types.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // Behind the 0 of an abstract name.
    let name = address.as_abstract_name().unwrap_or_default();
    for (to, from) in raw.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    let len_bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: the pointer and the length describe `raw`: SocketAddr refuses names that are longer than it.
    let rc = unsafe {
        libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), len_bytes as libc::socklen_t)
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    let connection = UnixStream::from(fd);
    connection.set_nonblocking(false)?;
    Ok(connection)
}

/// Tells if the other end of a connection is a process of this user, or of root.
fn is_trusted(connection: BorrowedFd<'_>) -> bool {
    // SAFETY: ucred is three integers.
    let peer =
        unsafe { socket::get::<libc::ucred>(connection, libc::SOL_SOCKET, libc::SO_PEERCRED) };
    // SAFETY: no memory is involved.
    let own = unsafe { libc::geteuid() };
    peer.is_ok_and(|peer| peer.uid == 0 || peer.uid == own)
}

impl KeeperPlace {
    /// Forks the process that undoes the change.
    ///
    /// - `needed`: descriptor that `undo` works with.
    /// - `undo`: runs in the forked process. It may make system calls only: locks of the owner's other
    ///   threads are held for ever there.
    pub(crate) fn keep(self, needed: BorrowedFd<'_>, undo: impl FnOnce()) -> io::Result<Owner> {
        let (connection, other) = UnixStream::pair()?;
        // SAFETY: the child makes system calls only and never returns.
        let pid = unsafe { libc::fork() };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if pid == 0 {
            let (listener, first) = (self.listener.as_raw_fd(), other.as_raw_fd());
            // A signal of the terminal is for the owner, which ends in its own time.
            // SAFETY: no memory is involved.
            unsafe { libc::setsid() };
            close_all_but([listener, first, needed.as_raw_fd()]);
            wait_until_alone(&self.listener, first, self.kind);
            undo();
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        Ok(Owner { connection, keeper: Some(pid) })
    }

    /// Has netlink messages sent when the last owner ends.
    ///
    /// - `protocol`: such as NETLINK_GENERIC.
    /// - `messages`: complete requests for an answer (NLM_F_ACK), sent in order to the calling thread's network
    ///   namespace. One that finds nothing to act on is repeated for a while.
    pub fn sends_at_end(self, protocol: i32, messages: &[Vec<u8>]) -> io::Result<Owner> {
        let socket = socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        // This process's copy is closed on return; that of the keeper lives as long as it.
        let socket = socket.as_fd();
        self.keep(socket, || {
            let end = Instant::now() + REPEAT_TIMEOUT;
            for message in messages {
                while request(socket, message) == Some(-libc::ENOENT) && Instant::now() < end {
                    std::thread::sleep(REPEAT_INTERVAL);
                }
            }
        })
    }
}

/// Returns when the last owner has ended. Its connection stays open, so that it sees the end of this process.
fn wait_until_alone(listener: &UnixListener, first: RawFd, kind: u8) {
    let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls = [poll(-1); OWNERS_MAX + 2];
    polls[0] = poll(listener.as_raw_fd());
    polls[1] = poll(first);
    loop {
        // SAFETY: the pointer and the length describe the array.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
        if ready < 0 {
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => continue,
                // Rather too early than never.
                _ => return,
            }
        }
        let (listening, owners) = polls.split_at_mut(1);
        for at in 0..owners.len() {
            if owners[at].fd < 0 || owners[at].revents == 0 {
                continue;
            }
            if owners.iter().filter(|owner| owner.fd >= 0).count() == 1 {
                return;
            }
            // Owners say nothing, so it has ended.
            let fd = std::mem::replace(&mut owners[at].fd, -1);
            send_byte(fd, OTHERS);
            // SAFETY: this process's own descriptor, which nothing else names any longer.
            unsafe { libc::close(fd) };
        }
        if listening[0].revents == 0 {
            continue;
        }
        // SAFETY: no address is asked for.
        let fd =
            unsafe { libc::accept(listening[0].fd, std::ptr::null_mut(), std::ptr::null_mut()) };
        // SAFETY: borrowed for the call only.
        let is_owner = fd >= 0 && is_trusted(unsafe { BorrowedFd::borrow_raw(fd) });
        match owners.iter_mut().find(|owner| owner.fd < 0) {
            Some(owner) if is_owner => {
                send_byte(fd, kind);
                owner.fd = fd;
            }
            // SAFETY: as above; -1 is no descriptor.
            _ => drop(unsafe { libc::close(fd) }),
        }
    }
}

fn send_byte(fd: RawFd, byte: u8) {
    // SAFETY: one byte is read from `byte`. An owner that has ended gets nothing.
    unsafe { libc::send(fd, (&raw const byte).cast(), 1, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
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
    use std::io::{PipeReader, PipeWriter};

    use super::*;

    /// A change whose undoing writes a byte.
    fn keep(name: &str, writer: &PipeWriter) -> Owner {
        match claim(name, 1).unwrap() {
            Claim::New(place) => place.keep(writer.as_fd(), || write(writer.as_fd())).unwrap(),
            Claim::Joined(_) => panic!("{name} has an owner"),
        }
    }

    /// Writes a byte by a plain system call.
    fn write(fd: BorrowedFd<'_>) {
        // SAFETY: one byte is read from a constant.
        unsafe { libc::write(fd.as_raw_fd(), c"x".as_ptr().cast(), 1) };
    }

    fn is_undone(reader: &PipeReader) -> bool {
        socket::wait(reader.as_fd(), false, Duration::ZERO).unwrap().readable
    }

    /// Of a change that is this test's alone.
    fn name(of: &str) -> String {
        format!("test-{}-{of}", std::process::id())
    }

    #[test]
    fn the_keeper_undoes_when_its_owner_ends_and_not_before() {
        let (reader, writer) = io::pipe().unwrap();
        let owner = keep(&name("one"), &writer);
        let process = format!("/proc/{}", owner.keeper.unwrap());
        assert!(std::path::Path::new(&process).exists() && !is_undone(&reader));
        drop(owner);
        assert!(!std::path::Path::new(&process).exists() && is_undone(&reader));
    }

    #[test]
    fn the_first_of_two_keepers_is_not_held_by_the_second() {
        let [(first_reader, first_writer), (reader, writer)] =
            [(); 2].map(|()| io::pipe().unwrap());
        let first = keep(&name("first"), &first_writer);
        let second = keep(&name("second"), &writer);
        drop(first);
        assert!(is_undone(&first_reader) && !is_undone(&reader));
        drop(second);
        assert!(is_undone(&reader));
    }

    #[test]
    fn a_change_is_undone_when_the_last_of_its_owners_ends() {
        for first_ends_first in [true, false] {
            let (reader, writer) = io::pipe().unwrap();
            let name = name(if first_ends_first { "joined" } else { "left" });
            let first = keep(&name, &writer);
            let Claim::Joined(second) = claim(&name, 1).unwrap() else { panic!("not joined") };
            assert_eq!(claim(&name, 2).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
            let [one, other] = if first_ends_first { [first, second] } else { [second, first] };
            drop(one);
            assert!(!is_undone(&reader), "first ends first: {first_ends_first}");
            drop(other);
            assert!(is_undone(&reader), "first ends first: {first_ends_first}");
            assert!(matches!(claim(&name, 2), Ok(Claim::New(_))), "the name is free");
        }
    }

    #[test]
    fn a_stranger_with_the_name_is_not_waited_for_without_end() {
        let name = name("stranger");
        let address = SocketAddr::from_abstract_name(format!("wirepath/{name}")).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        // The backlog is full after the first.
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let limit = Duration::from_millis(100);
        for _ in 0..3 {
            let refused = claim_within(limit, &name, 1).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        }
    }

    #[test]
    fn a_claim_waits_until_the_change_is_undone() {
        let (reader, writer) = io::pipe().unwrap();
        let name = name("slow");
        let Claim::New(place) = claim(&name, 1).unwrap() else { panic!("has an owner") };
        let owner = place.keep(writer.as_fd(), || {
            std::thread::sleep(Duration::from_millis(300));
            write(writer.as_fd());
        });
        let ending = std::thread::spawn(move || drop(owner));
        let next = loop {
            match claim(&name, 2) {
                Ok(claim) => break claim,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::ResourceBusy),
            }
        };
        assert!(matches!(next, Claim::New(_)) && is_undone(&reader));
        ending.join().unwrap();
    }
}
