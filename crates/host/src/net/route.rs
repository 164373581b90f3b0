//! Routes and neighbours of an address.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use netlink_bindings::{rt_neigh, rt_route};

use super::error::{NetError, ask};
use super::link::{Link, Mac, link};

const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(1);
/// UDP port of the discard service.
///
/// Source: RFC 863.
const DISCARD_PORT: u16 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub ifindex: u32,
    /// Next router; `None` if the address is on the interface's own network.
    pub gateway: Option<IpAddr>,
    /// Source address that the kernel would use.
    pub source: IpAddr,
    /// The address is a broadcast address of the network.
    pub is_broadcast: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub ifindex: u32,
    pub ifname: String,
    pub source_ip: IpAddr,
    /// MAC address to send to: the destination's or the router's.
    pub next_hop_mac: Mac,
    pub own_mac: Mac,
    pub mtu_bytes: u32,
}

/// Looks up a route, as for a packet of an unbound socket.
pub fn route_to(destination: impl Into<IpAddr>) -> Result<Route, NetError> {
    let destination = destination.into();
    let header = rt_route::Rtmsg {
        rtm_family: family(destination),
        rtm_dst_len: if destination.is_ipv6() { 128 } else { 32 },
        ..Default::default()
    };
    let answer = ask(format!("asking for the route to {destination}"), |socket| {
        let mut request = rt_route::Request::new().op_getroute_do(&header);
        request.encode().push_dst(destination);
        let mut reply = socket.request(&request)?;
        let (header, attributes) = reply.recv_one()?;
        Ok(Route {
            ifindex: attributes.get_oif()?,
            gateway: attributes.get_gateway().ok(),
            source: attributes.get_prefsrc().unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            is_broadcast: header.rtm_type == libc::RTN_BROADCAST,
        })
    });
    answer.map_err(|error| match error {
        NetError::Kernel { source, .. } if is_unreachable(source.as_io_error()) => {
            NetError::NoRoute { destination, source }
        }
        // A `prohibit` route reads as a missing capability.
        NetError::Denied { source, .. } => NetError::NoRoute { destination, source },
        error => error,
    })
}

/// Address family of a request about an address.
pub(super) fn family(ip: IpAddr) -> u8 {
    (if ip.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }) as u8
}

fn is_unreachable(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        // EINVAL is the answer of a `blackhole` route.
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL)
    )
}

/// Adds the default route of IPv4.
pub fn add_default_route(gateway: Ipv4Addr) -> Result<(), NetError> {
    let header = rt_route::Rtmsg {
        rtm_family: libc::AF_INET as u8,
        rtm_table: libc::RT_TABLE_MAIN,
        rtm_protocol: libc::RTPROT_STATIC,
        rtm_scope: libc::RT_SCOPE_UNIVERSE,
        rtm_type: libc::RTN_UNICAST,
        ..Default::default()
    };
    ask(format!("adding the default route by {gateway}"), |socket| {
        let mut request = rt_route::Request::new().set_create().set_excl().op_newroute_do(&header);
        request.encode().push_gateway(gateway.into());
        socket.request(&request)?.recv_ack()
    })
}

/// Returns the MAC address of a neighbour if the kernel knows it; sends no request to it.
pub fn neighbour(ifindex: u32, ip: IpAddr) -> Result<Option<Mac>, NetError> {
    use rt_neigh::NudState;
    const VALID: u16 = NudState::Reachable as u16
        | NudState::Stale as u16
        | NudState::Delay as u16
        | NudState::Probe as u16
        | NudState::Noarp as u16
        | NudState::Permanent as u16;
    let header = rt_neigh::Ndmsg {
        ndm_family: family(ip),
        ndm_ifindex: ifindex as i32,
        ..Default::default()
    };
    let answer = ask(format!("asking for neighbour {ip}"), |socket| {
        let mut request = rt_neigh::Request::new().op_getneigh_do(&header);
        request.encode().push_dst(ip);
        let mut reply = socket.request(&request)?;
        let (header, attributes) = reply.recv_one()?;
        let mac = attributes.get_lladdr().ok().and_then(|bytes| bytes.try_into().ok());
        Ok(mac.filter(|_| header.ndm_state & VALID != 0))
    });
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        answer => answer,
    }
}

/// Resolves the addresses of a frame to `destination` from the route and neighbour tables.
///
/// - `interface`: required interface, if any.
/// - An unknown neighbour is resolved by sending one UDP datagram to the destination's discard port;
///   this waits at most a second for the answer.
/// - It applies to the network namespace of the calling thread.
pub fn resolve(
    destination: impl Into<IpAddr>,
    interface: Option<&str>,
) -> Result<Resolved, NetError> {
    let destination = destination.into();
    let (route, out) = route_by(destination, interface)?;
    let Some(own_mac) = out.mac else {
        return Err(NetError::NotEthernet { interface: out.name });
    };
    let next_hop = route.gateway.unwrap_or(destination);
    let next_hop_mac = if out.is_loopback {
        own_mac
    } else if route.is_broadcast {
        [0xff; 6]
    } else if destination.is_multicast() {
        group_mac(destination)
    } else {
        match neighbour(route.ifindex, next_hop)? {
            Some(mac) => mac,
            None => make_known(&route, destination, next_hop, &out.name)?,
        }
    };
    Ok(Resolved {
        ifindex: out.index,
        ifname: out.name,
        source_ip: route.source,
        next_hop_mac,
        own_mac,
        mtu_bytes: out.mtu_bytes,
    })
}

/// Looks up a route and its interface. Errors: it leads out of another one than this.
pub fn route_by(destination: IpAddr, interface: Option<&str>) -> Result<(Route, Link), NetError> {
    let route = route_to(destination)?;
    let out = link(route.ifindex)?;
    if let Some(wanted) = interface.filter(|wanted| *wanted != out.name) {
        // A missing interface has an error of its own.
        let wanted = super::link_named(wanted)?.name;
        return Err(NetError::OtherInterface { destination, wanted, actual: out.name });
    }
    Ok((route, out))
}

fn group_mac(group: IpAddr) -> Mac {
    match group {
        // RFC 1112 section 6.4: the lower 23 bits of the group.
        IpAddr::V4(ip) => {
            let [_, a, b, c] = ip.octets();
            [0x01, 0x00, 0x5e, a & 0x7f, b, c]
        }
        // RFC 2464 section 7: the lower 32 bits.
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            [0x33, 0x33, a, b, c, d]
        }
    }
}

/// Makes the kernel resolve the next hop by sending a datagram.
fn make_known(
    route: &Route,
    destination: IpAddr,
    next_hop: IpAddr,
    interface: &str,
) -> Result<Mac, NetError> {
    let failed = |source| NetError::Io { what: format!("sending to {destination}"), source };
    let socket = UdpSocket::bind((route.source, 0)).map_err(failed)?;
    socket.send_to(&[0], (destination, DISCARD_PORT)).map_err(failed)?;
    let deadline = Instant::now() + NEIGHBOUR_TIMEOUT;
    loop {
        if let Some(mac) = neighbour(route.ifindex, next_hop)? {
            return Ok(mac);
        }
        if Instant::now() >= deadline {
            let interface = interface.to_owned();
            return Err(NetError::NoNeighbour { next_hop, interface });
        }
        thread::sleep(Duration::from_millis(2));
    }
}
