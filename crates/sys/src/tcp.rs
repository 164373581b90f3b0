//! Options and statistics of a TCP connection.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::address::RawAddress;
use crate::socket;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Segments that were sent again.
    pub retransmit_count: u32,
    /// Segments sent, those without data included.
    pub sent_count: u32,
    /// Segments sent with data.
    pub sent_with_payload_count: u32,
    /// Largest segment that is sent, bytes.
    pub segment_bytes_max: u32,
}

/// The beginning of struct tcp_info.
///
/// Source: include/uapi/linux/tcp.h, 4.6 and later; fields are only ever added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    _states: [u8; 8],
    _before_mss: [u32; 2],
    snd_mss: u32,
    _before_retrans: [u32; 20],
    total_retrans: u32,
    _rates_and_bytes: [u64; 4],
    segs_out: u32,
    _before_segments: [u32; 4],
    data_segs_out: u32,
}

pub fn statistics(fd: BorrowedFd<'_>) -> io::Result<Statistics> {
    // SAFETY: every bit pattern is valid for a struct of integers.
    let info: TcpInfo = unsafe { socket::get(fd, libc::SOL_TCP, libc::TCP_INFO) }?;
    Ok(Statistics {
        retransmit_count: info.total_retrans,
        sent_count: info.segs_out,
        sent_with_payload_count: info.data_segs_out,
        segment_bytes_max: info.snd_mss,
    })
}

/// Acknowledges what has arrived at once, and what arrives next, until the connection looks interactive
/// again: the option does not last, so it is set after each read.
///
/// Source: tcp(7), TCP_QUICKACK.
pub fn set_quickack(fd: BorrowedFd<'_>) -> io::Result<()> {
    socket::set_int(fd, libc::SOL_TCP, libc::TCP_QUICKACK, 1)
}

/// True while acknowledgements are not delayed.
pub fn is_quickack(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(socket::get_int(fd, libc::SOL_TCP, libc::TCP_QUICKACK)? != 0)
}

/// Longest waits of a socket's calls.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Of a read or an accept.
    pub receive: Duration,
    /// Of a write or a connect.
    pub send: Duration,
}

fn timeval(timeout: Duration) -> libc::timeval {
    libc::timeval {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_usec: timeout.subsec_micros().into(),
    }
}

/// Limits the waits of a socket, and of the connections that it accepts (SO_RCVTIMEO, SO_SNDTIMEO).
pub fn set_timeouts(fd: BorrowedFd<'_>, timeouts: Timeouts) -> io::Result<()> {
    socket::set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeval(timeouts.receive))?;
    socket::set(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, timeval(timeouts.send))
}

/// Limits the bytes that a connection holds and has not sent yet, beyond which a write waits.
///
/// Source: Documentation/networking/ip-sysctl.rst, tcp_notsent_lowat.
pub fn limit_unsent(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    socket::set(fd, libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// Connects, in few system calls: socket(2), two options, connect(2).
pub fn connect(to: SocketAddr, timeouts: Timeouts) -> io::Result<TcpStream> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let fd = socket::open(family, libc::SOCK_STREAM, 0)?;
    set_timeouts(fd.as_fd(), timeouts)?;
    let address = RawAddress::from(to);
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let rc =
        unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), address.len_bytes()) };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(fd.into()) }
}

/// Longest name of a congestion control, with its end.
///
/// Source: include/net/tcp.h, TCP_CA_NAME_MAX.
const CONTROL_BYTES: usize = 16;

/// Congestion control of a connection.
pub fn congestion_control(fd: BorrowedFd<'_>) -> io::Result<String> {
    // SAFETY: every bit pattern is valid for an array of bytes.
    let name: [u8; CONTROL_BYTES] =
        unsafe { socket::get(fd, libc::SOL_TCP, libc::TCP_CONGESTION) }?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Gives a connection another congestion control; with CAP_NET_ADMIN any that the kernel has.
///
/// Errors: ENOENT, the kernel has none of this name; EPERM.
pub fn set_congestion_control(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut bytes = [0; CONTROL_BYTES];
    match bytes.get_mut(..name.len()).filter(|bytes| bytes.len() < CONTROL_BYTES) {
        Some(bytes) => bytes.copy_from_slice(name.as_bytes()),
        None => return Err(io::ErrorKind::NotFound.into()),
    }
    socket::set(fd, libc::SOL_TCP, libc::TCP_CONGESTION, bytes)
}

/// Congestion control of a new connection to an address, that of its route included. Sends one SYN.
pub fn congestion_control_towards(to: SocketAddr) -> io::Result<String> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    let fd = socket::open(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    let address = RawAddress::from(to);
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let rc =
        unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), address.len_bytes()) };
    let error = io::Error::last_os_error();
    if rc != 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(error);
    }
    congestion_control(fd.as_fd())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const SHORT: Timeouts =
        Timeouts { receive: Duration::from_millis(5), send: Duration::from_secs(10) };

    #[test]
    fn layout_is_that_of_the_kernel() {
        assert_eq!(std::mem::offset_of!(TcpInfo, snd_mss), 16);
        assert_eq!(std::mem::offset_of!(TcpInfo, total_retrans), 100);
        assert_eq!(std::mem::offset_of!(TcpInfo, segs_out), 136);
        assert_eq!(std::mem::offset_of!(TcpInfo, data_segs_out), 156);
    }

    #[test]
    fn segments_of_a_connection_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = connect(listener.local_addr().unwrap(), SHORT).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.set_nodelay(true).unwrap();
        for _ in 0..5 {
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            set_quickack(far.as_fd()).unwrap();
            assert!(is_quickack(far.as_fd()).unwrap());
        }
        let sent = statistics(near.as_fd()).unwrap();
        assert_eq!((sent.sent_with_payload_count, sent.retransmit_count), (5, 0), "{sent:?}");
        assert!(sent.sent_count > 5 && sent.segment_bytes_max > 500, "{sent:?}");
    }

    #[test]
    fn a_connection_has_the_congestion_control_that_it_was_given() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let near = connect(at, SHORT).unwrap();
        assert_eq!(
            congestion_control_towards(at).unwrap(),
            congestion_control(near.as_fd()).unwrap()
        );
        set_congestion_control(near.as_fd(), "reno").unwrap();
        assert_eq!(congestion_control(near.as_fd()).unwrap(), "reno");
        for unknown in ["wirepath-none", "a-name-of-sixteen"] {
            let error = set_congestion_control(near.as_fd(), unknown).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn accepts_and_reads_of_accepted_connections_end_with_the_time_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_timeouts(listener.as_fd(), SHORT).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        assert_eq!(far.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
