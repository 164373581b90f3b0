//! Socket options and waiting, shared by every kind of socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

pub use libc::{ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENXIO, ETIMEDOUT};

/// Absent from `libc`.
const SO_PREFER_BUSY_POLL: i32 = 69;
/// Absent from `libc`.
const SO_BUSY_POLL_BUDGET: i32 = 70;

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
pub(crate) fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
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
pub(crate) unsafe fn get<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    // SAFETY: the caller promises that all-zero is a valid T.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len_bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the kernel writes at most that much.
    let rc = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len_bytes)
    };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Number of rules of a table of iptables-legacy, without the policies of its own chains.
///
/// - `fd`: a raw socket of that IP version.
///
/// Errors: there is no such table in the socket's namespace, or no CAP_NET_ADMIN.
///
/// Source: linux/netfilter_ipv4/ip_tables.h, struct ipt_getinfo; that of IPv6 is alike.
pub fn legacy_rule_count(fd: BorrowedFd<'_>, is_ipv6: bool, table: &str) -> io::Result<u32> {
    const IPT_SO_GET_INFO: i32 = 64;
    const HOOKS: usize = 8;
    const ENTRIES: usize = 19;
    let mut info = [0u32; 21];
    for (word, bytes) in info.iter_mut().zip(table.as_bytes().chunks(4)).take(HOOKS) {
        let mut padded = [0; 4];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u32::from_ne_bytes(padded);
    }
    let level = if is_ipv6 { libc::IPPROTO_IPV6 } else { libc::IPPROTO_IP };
    let mut len_bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: pointer and length describe `info`; the kernel reads and writes at most that much.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            IPT_SO_GET_INFO,
            info.as_mut_ptr().cast(),
            &mut len_bytes,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // An entry is the policy of each chain of its own, and one the end.
    Ok(info[ENTRIES].saturating_sub(info[HOOKS].count_ones() + 1))
}

pub fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    set(fd, level, name, value)
}

pub fn get_int(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    // SAFETY: every bit pattern is a valid i32.
    unsafe { get(fd, level, name) }
}

/// Requests a receive buffer of `bytes`, above the host's limit with CAP_NET_ADMIN. Returns the
/// granted size, which the kernel doubles for bookkeeping.
pub fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
    if set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err() {
        set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, wanted)?;
    }
    receive_buffer(fd)
}

/// Size of the receive buffer in bytes: twice the request, if it was granted.
pub fn receive_buffer(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(get_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)? as usize)
}

/// Makes the kernel end a TCP connection whose other end is gone: its host is off, or the network between
/// them is cut. Reads and writes then fail with ETIMEDOUT.
///
/// - `silence`: time without an answer of the other host to data or probes, at least 5 s.
///
/// Source: tcp(7), TCP_USER_TIMEOUT and TCP_KEEPIDLE.
pub fn end_when_silent(fd: BorrowedFd<'_>, silence: Duration) -> io::Result<()> {
    const PROBES: i32 = 3;
    let silence_s = silence.as_secs().max(5) as i32;
    let interval_s = silence_s / (PROBES + 2);
    let timeout_ms = silence_s.saturating_mul(1000);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, timeout_ms)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, silence_s - PROBES * interval_s)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, interval_s)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES)?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// Name of [`set_busy_poll`]'s options in errors, with the kernel that has both.
pub const BUSY_POLL: &str = "SO_BUSY_POLL with SO_PREFER_BUSY_POLL (Linux 5.11)";

/// Makes the socket poll the device queue itself: 50 µs a call, up to 64 packets a poll.
///
/// - `is_preferred`: the device's own interrupts are deferred in favour of it. A send call of an AF_XDP
///   socket in zero-copy mode then polls the NAPI instance of receiving in place of waking the sender's,
///   which is another one on virtio-net and igb, so that hardly anything is sent.
pub fn set_busy_poll(fd: BorrowedFd<'_>, is_preferred: bool) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, is_preferred.into())?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, 50)?;
    set_int(fd, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, 64)
}

/// NAPI instance that last delivered to this socket; 0 if none is known, and then busy polling has
/// no effect.
pub fn incoming_napi_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(get_int(fd, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)? as u32)
}

/// Datagrams for this socket that were dropped by a filter or for lack of room.
///
/// Source: SO_MEMINFO, SK_MEMINFO_DROPS, linux/sock_diag.h.
pub fn drop_count(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const SO_MEMINFO: i32 = 55;
    const SK_MEMINFO_DROPS: usize = 8;
    // SAFETY: every bit pattern is a valid array of u32.
    let counts: [u32; 9] = unsafe { get(fd, libc::SOL_SOCKET, SO_MEMINFO) }?;
    Ok(u64::from(counts[SK_MEMINFO_DROPS]))
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

/// A socket for requests, and one that names an interface of this namespace.
pub(crate) fn interface_request(ifindex: u32) -> Option<(OwnedFd, libc::ifreq)> {
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
    pub readable: bool,
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

/// Reads what is there, without waiting. Errors: EAGAIN if there is nothing.
pub fn receive_now(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `into`, which outlives the call.
    let got = unsafe {
        libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT)
    };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}

/// Makes the kernel send the frames of a socket's TX ring, without waiting. Returns false if it
/// must be called again: the kernel reached its limit a call, the queue was locked or full, or the
/// link is down and may come back.
pub(crate) fn wake_sender(fd: BorrowedFd<'_>) -> io::Result<bool> {
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

/// Makes the kernel drop all datagrams for this socket, without an ICMP error.
///
/// Source: a classic BPF filter that returns 0 (socket(7), SO_ATTACH_FILTER).
pub fn attach_drop_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    attach_filter(fd, &mut [FilterStep { code: 0x06, jt: 0, jf: 0, k: 0 }])
}

/// One instruction of classic BPF.
#[derive(Debug, Clone, Copy)]
pub struct FilterStep {
    pub code: u16,
    /// Steps to skip when true.
    pub jt: u8,
    /// Steps to skip when false.
    pub jf: u8,
    pub k: u32,
}

/// Attaches a classic BPF program to the socket; the kernel verifies it.
pub fn attach_filter(fd: BorrowedFd<'_>, steps: &mut [FilterStep]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> = steps
        .iter()
        .map(|s| libc::sock_filter { code: s.code, jt: s.jt, jf: s.jf, k: s.k })
        .collect();
    let len = u16::try_from(code.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "filter too long"))?;
    let program = libc::sock_fprog { len, filter: code.as_mut_ptr() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}
