//! Multicast groups: join and leave on an interface, and send.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use crate::socket;

/// Takes the interface by index, which IP_ADD_SOURCE_MEMBERSHIP cannot.
///
/// Source: linux/in.h; RFC 3678 section 5.1.
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
const IP_MULTICAST_ALL: i32 = 49;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The group, 224.0.0.0 to 239.255.255.255.
    pub group: Ipv4Addr,
    /// Only sender to receive from; `None` for any.
    pub source: Option<Ipv4Addr>,
    pub ifindex: u32,
    pub ifname: String,
}

#[derive(Debug, thiserror::Error)]
pub enum MulticastError {
    #[error("{group} is not a multicast group; groups are 224.0.0.0 to 239.255.255.255")]
    NotAGroup { group: Ipv4Addr },
    #[error("{from} cannot be the sender of {group}; give the address of one host as --source")]
    NotASource { group: Ipv4Addr, from: Ipv4Addr },
    #[error(
        "cannot join {group} on {ifname}: this socket has as many {what} as the host allows; \
         raise it (sysctl -w net.ipv4.{limit}=…)"
    )]
    TooMany {
        group: Ipv4Addr,
        ifname: String,
        /// Kind of entry above the limit.
        what: &'static str,
        limit: &'static str,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot join {group} on {ifname}: it is gone or has no IPv4; see `ip address show {ifname}` \
         and give it an address (ip address add ADDRESS/PREFIX dev {ifname})"
    )]
    NoIpv4 {
        group: Ipv4Addr,
        ifname: String,
        #[source]
        source: io::Error,
    },
    #[error("{what} failed for group {group} on {ifname}")]
    System {
        what: &'static str,
        group: Ipv4Addr,
        ifname: String,
        #[source]
        source: io::Error,
    },
}

/// `group_source_req` of linux/in.h; the kernel reads the addresses as `sockaddr_storage`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupSourceReq {
    interface: u32,
    group: libc::sockaddr_storage,
    source: libc::sockaddr_storage,
}

impl Membership {
    /// Checks that the group is a multicast address and the source is not.
    pub fn check(&self) -> Result<(), MulticastError> {
        let group = self.group;
        if !group.is_multicast() {
            return Err(MulticastError::NotAGroup { group });
        }
        match self.source {
            Some(from) if from.is_multicast() || from.is_unspecified() || from.is_broadcast() => {
                Err(MulticastError::NotASource { group, from })
            }
            _ => Ok(()),
        }
    }

    /// Joins the group (the kernel sends IGMP). The membership ends with the socket.
    ///
    /// Source: ip(7), IP_ADD_MEMBERSHIP; RFC 3678 for one source.
    pub fn join(&self, fd: BorrowedFd<'_>) -> Result<(), MulticastError> {
        self.check()?;
        self.set(fd, libc::IP_ADD_MEMBERSHIP, MCAST_JOIN_SOURCE_GROUP)
            .map_err(|source| self.explain(source))
    }

    pub fn leave(&self, fd: BorrowedFd<'_>) -> Result<(), MulticastError> {
        self.set(fd, libc::IP_DROP_MEMBERSHIP, MCAST_LEAVE_SOURCE_GROUP)
            .map_err(|source| self.failed("leaving", source))
    }

    fn set(&self, fd: BorrowedFd<'_>, any: i32, one: i32) -> io::Result<()> {
        match self.source {
            None => socket::set(fd, libc::IPPROTO_IP, any, on_interface(self.group, self.ifindex)),
            Some(source) => {
                let request = GroupSourceReq {
                    interface: self.ifindex,
                    group: storage(self.group),
                    source: storage(source),
                };
                socket::set(fd, libc::IPPROTO_IP, one, request)
            }
        }
    }

    fn explain(&self, source: io::Error) -> MulticastError {
        let (group, ifname) = (self.group, self.ifname.clone());
        match source.raw_os_error() {
            Some(libc::ENOBUFS) => {
                let (what, limit) = match self.source {
                    None => ("memberships", "igmp_max_memberships"),
                    // Both limits have the same error; the default of ten sources is below twenty groups.
                    Some(_) => ("memberships or sources", "igmp_max_memberships, igmp_max_msf"),
                };
                MulticastError::TooMany { group, ifname, what, limit, source }
            }
            Some(libc::ENODEV) => MulticastError::NoIpv4 { group, ifname, source },
            _ => self.failed("joining", source),
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> MulticastError {
        MulticastError::System { what, group: self.group, ifname: self.ifname.clone(), source }
    }
}

fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from(ip).to_be() }
}

fn on_interface(group: Ipv4Addr, ifindex: u32) -> libc::ip_mreqn {
    libc::ip_mreqn {
        imr_multiaddr: in_addr(group),
        imr_address: in_addr(Ipv4Addr::UNSPECIFIED),
        imr_ifindex: ifindex as i32,
    }
}

fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: in_addr(*address.ip()),
        sin_zero: [0; 8],
    }
}

fn storage(ip: Ipv4Addr) -> libc::sockaddr_storage {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = (&raw mut storage).cast::<libc::sockaddr_in>();
    // SAFETY: a sockaddr_storage has the size and the alignment of every address.
    unsafe { at.write(sockaddr(SocketAddrV4::new(ip, 0))) };
    storage
}

/// A UDP socket bound to a group's address, so that it receives no other datagrams of the port;
/// other programs may bind it too. Only memberships of this socket count, not those of other
/// programs (IP_MULTICAST_ALL off).
pub fn bind(group: SocketAddrV4) -> io::Result<UdpSocket> {
    let fd = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let socket = UdpSocket::from(fd);
    let fd = std::os::fd::AsFd::as_fd(&socket);
    socket::set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    socket::set_int(fd, libc::IPPROTO_IP, IP_MULTICAST_ALL, 0)?;
    let address = sockaddr(group);
    // SAFETY: pointer and length describe `address`.
    let rc = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// A UDP socket that sends to `to` through an interface; `ttl` applies if `to` is a group (1: not
/// past a router).
pub fn sender(to: SocketAddrV4, ifindex: u32, ttl: u8) -> io::Result<UdpSocket> {
    let fd: OwnedFd = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let socket = UdpSocket::from(fd);
    let fd = std::os::fd::AsFd::as_fd(&socket);
    if to.ip().is_multicast() {
        let through = on_interface(Ipv4Addr::UNSPECIFIED, ifindex);
        socket::set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, through)?;
        socket::set_int(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, ttl.into())?;
    }
    socket.connect(to)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 77, 3, 1), 17_301);
    const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 77, 3, 2), 17_301);
    /// Index of the loopback interface in every namespace.
    const LO: u32 = 1;

    fn membership(group: SocketAddrV4, source: Option<Ipv4Addr>) -> Membership {
        Membership { group: *group.ip(), source, ifindex: LO, ifname: "lo".into() }
    }

    fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut all = Vec::new();
        let mut buffer = [0; 64];
        while let Ok(len) = socket.recv(&mut buffer) {
            all.push(buffer[..len].to_vec());
        }
        all
    }

    #[test]
    fn member_receives_its_group_only_until_it_leaves() {
        let (one, other) = (bind(GROUP).unwrap(), bind(OTHER).unwrap());
        membership(GROUP, None).join(one.as_fd()).unwrap();
        membership(OTHER, None).join(other.as_fd()).unwrap();
        let to_one = sender(GROUP, LO, 1).unwrap();
        let to_other = sender(OTHER, LO, 1).unwrap();
        to_one.send(b"one").unwrap();
        to_other.send(b"other").unwrap();
        assert_eq!(received(&one), [b"one"]);
        assert_eq!(received(&other), [b"other"]);
        membership(GROUP, None).leave(one.as_fd()).unwrap();
        to_one.send(b"late").unwrap();
        assert_eq!(received(&one), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn only_the_given_source_is_received() {
        let group = SocketAddrV4::new(Ipv4Addr::new(232, 77, 3, 3), 17_303);
        let socket = bind(group).unwrap();
        membership(group, Some(Ipv4Addr::new(127, 0, 0, 5))).join(socket.as_fd()).unwrap();
        for from in ["127.0.0.4:0", "127.0.0.5:0"] {
            let sender = UdpSocket::bind(from).unwrap();
            let through = on_interface(Ipv4Addr::UNSPECIFIED, LO);
            socket::set(sender.as_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_IF, through).unwrap();
            sender.send_to(from.as_bytes(), group).unwrap();
        }
        assert_eq!(received(&socket), [b"127.0.0.5:0"]);
    }

    #[test]
    fn two_programs_may_receive_the_same_group() {
        let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 3, 4), 17_304);
        let sockets = [bind(group).unwrap(), bind(group).unwrap()];
        for socket in &sockets {
            membership(group, None).join(socket.as_fd()).unwrap();
        }
        sender(group, LO, 1).unwrap().send(b"both").unwrap();
        assert!(sockets.iter().all(|socket| received(socket) == [b"both"]));
    }

    #[test]
    fn failed_join_names_the_remedy() {
        let socket = bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let join = |group: [u8; 4], source: Option<[u8; 4]>, ifindex| {
            let membership = Membership {
                group: group.into(),
                source: source.map(Ipv4Addr::from),
                ifindex,
                ifname: format!("if{ifindex}"),
            };
            membership.join(socket.as_fd())
        };
        let said = |result: Result<(), MulticastError>| result.unwrap_err().to_string();
        assert!(said(join([192, 0, 2, 1], None, LO)).contains("not a multicast group"));
        assert!(said(join([232, 0, 0, 1], Some([224, 0, 0, 1]), LO)).contains("--source"));
        let gone = said(join([239, 0, 0, 1], None, 999_999));
        assert!(gone.contains("if999999") && gone.contains("ip address"), "{gone}");
        let limit = std::fs::read_to_string("/proc/sys/net/ipv4/igmp_max_memberships").unwrap();
        let limit: u8 = limit.trim().parse().unwrap_or(u8::MAX);
        let refused = (0..=limit).map(|n| join([239, 77, 4, n], None, LO)).find(Result::is_err);
        if limit < u8::MAX {
            let refused = said(refused.expect("one more than the limit"));
            assert!(refused.contains("igmp_max_memberships") && refused.contains("if1"));
        }
    }
}
