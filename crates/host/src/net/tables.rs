//! All neighbours, addresses and routes of this namespace.

use std::net::IpAddr;

use netlink_bindings::rt_addr::{self, Ifaddrmsg};
use netlink_bindings::rt_neigh::{self, Ndmsg, NudState};
use netlink_bindings::rt_route::{self, Rtmsg};

use super::error::{NetError, ask};
use super::link::Mac;

/// Most rows of a table that are read.
const ROWS_MAX: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeighbourState {
    /// It has been asked and has not answered yet; packets wait.
    Incomplete,
    /// It did not answer.
    Failed,
    /// Its MAC address may be outdated and is being asked for: at that address first.
    Probe,
    /// Its MAC address is used, and soon asked for.
    Delay,
    Stale,
    Reachable,
    /// Entered by hand, or without addresses.
    Fixed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    pub interface: u32,
    pub ip: IpAddr,
    /// `None` as long as it is not known.
    pub mac: Option<Mac>,
    pub state: NeighbourState,
    /// Time since it showed that it is there, seconds.
    pub confirmed_s: u32,
}

impl Neighbour {
    /// It has been asked and does not answer.
    pub fn is_silent(&self) -> bool {
        matches!(self.state, NeighbourState::Incomplete | NeighbourState::Failed)
    }
}

/// Neighbours of both IP versions, at most 100,000.
pub fn neighbours() -> Result<Vec<Neighbour>, NetError> {
    ask("listing neighbours", |socket| {
        let request = rt_neigh::Request::new().op_getneigh_dump(&Ndmsg::new());
        let mut replies = socket.request(&request)?;
        let mut found = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let Ok(ip) = attributes.get_dst() else { continue };
            found.push(Neighbour {
                interface: header.ndm_ifindex as u32,
                ip,
                mac: attributes.get_lladdr().ok().and_then(|bytes| bytes.try_into().ok()),
                state: neighbour_state(header.ndm_state),
                // Source: linux/neighbour.h, nda_cacheinfo: hundredths of a second.
                confirmed_s: attributes.get_cacheinfo().map_or(0, |times| times.confirmed / 100),
            });
            if found.len() >= ROWS_MAX {
                break;
            }
        }
        Ok(found)
    })
}

fn neighbour_state(bits: u16) -> NeighbourState {
    let states = [
        (NudState::Incomplete, NeighbourState::Incomplete),
        (NudState::Failed, NeighbourState::Failed),
        (NudState::Probe, NeighbourState::Probe),
        (NudState::Delay, NeighbourState::Delay),
        (NudState::Stale, NeighbourState::Stale),
        (NudState::Reachable, NeighbourState::Reachable),
    ];
    let found = states.into_iter().find(|(bit, _)| bits & *bit as u16 != 0);
    found.map_or(NeighbourState::Fixed, |(_, state)| state)
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub interface: u32,
    pub ip: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// Another host has it: it is not used (IPv6).
    pub is_duplicate: bool,
}

/// Addresses of all interfaces, at most 100,000.
pub fn all_addresses() -> Result<Vec<InterfaceAddress>, NetError> {
    ask("listing addresses", |socket| {
        let request = rt_addr::Request::new().op_getaddr_dump(&Ifaddrmsg::new());
        let mut replies = socket.request(&request)?;
        let mut found = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            // The address is that of the far end where there are two.
            let own = attributes.get_local().or_else(|_| attributes.get_address());
            let Ok(ip) = own else { continue };
            found.push(InterfaceAddress {
                interface: header.ifa_index,
                ip,
                prefix: header.ifa_prefixlen,
                is_duplicate: u32::from(header.ifa_flags) & libc::IFA_F_DADFAILED != 0,
            });
            if found.len() >= ROWS_MAX {
                break;
            }
        }
        Ok(found)
    })
}

/// A route of any table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableRoute {
    pub table: u32,
    /// Destination and bits of its prefix; `None` for the default route.
    pub destination: Option<(IpAddr, u8)>,
    pub is_ipv6: bool,
    /// `RTN_UNICAST`, `RTN_BLACKHOLE` and so on.
    pub kind: u8,
    pub interface: Option<u32>,
    pub gateway: Option<IpAddr>,
    /// Smaller is preferred.
    pub metric: u32,
}

impl TableRoute {
    /// A default route that leads somewhere, of the table `main`.
    pub fn is_default(&self) -> bool {
        self.destination.is_none()
            && self.kind == libc::RTN_UNICAST
            && self.table == libc::RT_TABLE_MAIN as u32
    }
}

/// Routes of both IP versions without those of the table `local`, at most 100,000. Of a route with several next
/// hops, none is given.
pub fn all_routes() -> Result<Vec<TableRoute>, NetError> {
    const LOCAL: u32 = libc::RT_TABLE_LOCAL as u32;
    ask("listing routes", |socket| {
        let request = rt_route::Request::new().op_getroute_dump(&Rtmsg::new());
        let mut replies = socket.request(&request)?;
        let mut found = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            let table = attributes.get_table().unwrap_or(header.rtm_table.into());
            if table == LOCAL {
                continue;
            }
            found.push(TableRoute {
                table,
                destination: attributes.get_dst().ok().map(|ip| (ip, header.rtm_dst_len)),
                is_ipv6: i32::from(header.rtm_family) == libc::AF_INET6,
                kind: header.rtm_type,
                interface: attributes.get_oif().ok(),
                gateway: attributes.get_gateway().or_else(|_| attributes.get_via()).ok(),
                metric: attributes.get_priority().unwrap_or(0),
            });
            if found.len() >= ROWS_MAX {
                break;
            }
        }
        Ok(found)
    })
}

/// Interface and router by which a packet with this source would leave; `None` without a route.
pub fn route_from(source: IpAddr, destination: IpAddr) -> Option<(u32, Option<IpAddr>)> {
    let bits = if destination.is_ipv6() { 128 } else { 32 };
    let header = Rtmsg {
        rtm_family: super::route::family(destination),
        rtm_dst_len: bits,
        rtm_src_len: bits,
        ..Default::default()
    };
    let answer = ask(format!("asking for the route from {source} to {destination}"), |socket| {
        let mut request = rt_route::Request::new().op_getroute_do(&header);
        request.encode().push_dst(destination).push_src(source);
        let mut reply = socket.request(&request)?;
        let (_, attributes) = reply.recv_one()?;
        Ok((attributes.get_oif()?, attributes.get_gateway().or_else(|_| attributes.get_via()).ok()))
    });
    answer.ok()
}
