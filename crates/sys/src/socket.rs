//! Socket options and waiting, shared by every kind of socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

pub use xdp::os::{Readiness, is_running, is_up, open, wait};
pub(crate) use xdp::os::{get, interface_request, set, wake_sender};

pub use libc::{ENETDOWN, ENETUNREACH, ENOBUFS, ENODEV, ENXIO, ETIMEDOUT};

/// Absent from `libc`.
const SO_PREFER_BUSY_POLL: i32 = 69;
/// Absent from `libc`.
const SO_BUSY_POLL_BUDGET: i32 = 70;

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

/// Reads what is there, without waiting. Errors: EAGAIN if there is nothing.
pub fn receive_now(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length describe `into`, which outlives the call.
    let got = unsafe {
        libc::recv(fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT)
    };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
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
