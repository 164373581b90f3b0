//! Raw sockets for ICMP: echoes, and reports of routers that packets are too big for the path.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::address::RawAddress;
use crate::socket;

/// Option of IPPROTO_ICMP sockets, at level SOL_RAW: a mask of the types that are not delivered.
///
/// Source: struct icmp_filter, include/uapi/linux/icmp.h.
const ICMP_FILTER: i32 = 1;
const SOL_RAW: i32 = 255;
/// The same of ICMPv6: 256 bits.
///
/// Source: struct icmp6_filter, include/uapi/linux/icmpv6.h.
const ICMP6_FILTER: i32 = 1;
const ICMP6_FILTER_WORDS: usize = 8;
const DESTINATION_UNREACHABLE: u32 = 3;
const PACKET_TOO_BIG: u32 = 2;
const ECHO_REPLY: u32 = 0;

/// Opens a socket for ICMP messages to and echo replies from one address. Replies are received with the IP header in
/// front. It does not wait.
///
/// Errors: `PermissionDenied` without CAP_NET_RAW; ENETUNREACH without a route.
pub fn open_echo(peer: Ipv4Addr) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let fd = socket::open(libc::AF_INET, kind, libc::IPPROTO_ICMP)?;
    let refused: u32 = !(1 << ECHO_REPLY);
    socket::set(fd.as_fd(), SOL_RAW, ICMP_FILTER, refused)?;
    let address = RawAddress::from(SocketAddr::new(peer.into(), 0));
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let connected =
        unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), address.len_bytes()) };
    if connected != 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}

/// Opens a socket that receives ICMP "destination unreachable" (IPv4, with the IP header in front) or ICMPv6
/// "packet too big" (without) for one address of this host. It does not wait.
///
/// Errors: `PermissionDenied` without CAP_NET_RAW; EADDRNOTAVAIL if no interface has the address.
pub fn open_too_big(local: IpAddr) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
    let fd = match local {
        IpAddr::V4(_) => {
            let fd = socket::open(libc::AF_INET, kind, libc::IPPROTO_ICMP)?;
            let refused: u32 = !(1 << DESTINATION_UNREACHABLE);
            socket::set(fd.as_fd(), SOL_RAW, ICMP_FILTER, refused)?;
            fd
        }
        IpAddr::V6(_) => {
            let fd = socket::open(libc::AF_INET6, kind, libc::IPPROTO_ICMPV6)?;
            let mut refused = [u32::MAX; ICMP6_FILTER_WORDS];
            refused[0] = !(1 << PACKET_TOO_BIG);
            socket::set(fd.as_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, refused)?;
            fd
        }
    };
    let address = RawAddress::from(SocketAddr::new(local, 0));
    // SAFETY: pointer and length describe `address`, which outlives the call.
    let bound =
        unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), address.len_bytes()) };
    if bound != 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
}
