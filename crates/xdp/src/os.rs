//! System calls on sockets and interfaces: the ones that the sockets of this crate are made of, for
//! further options on them and for waiting.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Opens a socket that a new program does not inherit (SOCK_CLOEXEC).
pub fn open(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: socket(2) returned a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option to a plain C value.
pub fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option that is a plain C struct of integers; fields that the kernel does not
/// know stay zero.
///
/// # Safety
/// All-zero and every other bit pattern must be a valid `T`.
pub unsafe fn get<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: the caller promises that all-zero is a valid T.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len_bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the kernel writes at most that much.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len_bytes)
    };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// True if an interface of the calling thread's network namespace is up; `None` if there is none
/// of that index.
pub fn is_up(ifindex: u32) -> Option<bool> {
    has_flag(ifindex, libc::IFF_UP)
}

/// As [`is_up`], and the kernel knows of its carrier: up to a second after that changed.
pub fn is_running(ifindex: u32) -> Option<bool> {
    has_flag(ifindex, libc::IFF_RUNNING)
}

/// Source: netdevice(7), SIOCGIFFLAGS.
fn has_flag(ifindex: u32, flag: i32) -> Option<bool> {
    let (fd, mut request) = interface_request(ifindex)?;
    // SAFETY: the request names an interface and outlives the call, which writes its flags.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) };
    // SAFETY: every bit pattern is a valid flag word.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    (rc == 0).then_some(i32::from(flags) & flag != 0)
}

/// Index of an interface of the calling thread's network namespace.
///
/// Errors: `NotFound` if there is none of that name.
pub fn interface_index(ifname: &str) -> io::Result<u32> {
    // No interface has a name with a zero byte.
    let name = std::ffi::CString::new(ifname).unwrap_or_default();
    // SAFETY: a string with its zero byte, which outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, format!("no interface {ifname}"))),
        index => Ok(index),
    }
}

/// A socket for requests, and one that names an interface of this namespace.
pub fn interface_request(ifindex: u32) -> Option<(OwnedFd, libc::ifreq)> {
    let fd = open(libc::AF_INET, libc::SOCK_DGRAM, 0).ok()?;
    // SAFETY: all-zero is a valid ifreq, a name and a union of plain C types.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the name's array has the room that the call may use.
    let name = unsafe { libc::if_indextoname(ifindex, request.ifr_name.as_mut_ptr()) };
    if name.is_null() { None } else { Some((fd, request)) }
}

/// Interest or result of [`wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Readiness {
    /// There is something to receive.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The socket or its device failed.
    pub failed: bool,
}

/// Waits at most `timeout` until the socket is readable (or writable, if `writable`). A signal ends
/// the wait early with nothing ready.
pub fn wait(fd: BorrowedFd<'_>, writable: bool, timeout: Duration) -> io::Result<Readiness> {
    let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as _,
    };
    // SAFETY: one valid pollfd and a valid timespec; no signal mask.
    let rc = unsafe { libc::ppoll(&mut poll, 1, &timeout, std::ptr::null()) };
    if rc < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        poll.revents = 0;
    }
    Ok(Readiness {
        readable: poll.revents & libc::POLLIN != 0,
        writable: poll.revents & libc::POLLOUT != 0,
        failed: poll.revents & (libc::POLLERR | libc::POLLNVAL) != 0,
    })
}

/// Makes the kernel send the frames of a socket's TX ring, without waiting. Returns false if it
/// must be called again: the kernel reached its limit a call, the queue was locked or full, or the
/// link is down and may come back.
pub fn wake_sender(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: no data is passed; the descriptor is borrowed and so open.
    let rc = unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if rc >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR | libc::ENETDOWN) => {
            Ok(false)
        }
        _ => Err(error),
    }
}
