//! Resolves the addresses of both ends from the host's routes and neighbours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use host::net::{self, NetError};
use io::{Local, Remote};

/// The user's choices; the route determines the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Interface; `None` for the route's own.
    pub ifname: Option<String>,
    /// Receive queue.
    pub queue: u32,
    /// Local UDP port.
    pub port: u16,
}

/// Resolves the local and remote end for traffic with `ip`, in the calling thread's network
/// namespace. The next hop's MAC address is resolved by the kernel if needed.
pub fn towards(ip: IpAddr, remote_port: u16, choice: &Choice) -> Result<(Local, Remote), NetError> {
    let found = net::resolve(ip, choice.ifname.as_deref())?;
    let local = Local {
        ifindex: found.ifindex,
        ifname: found.ifname,
        mtu_bytes: found.mtu_bytes,
        queue: choice.queue,
        queues: queue_count(found.ifindex)?,
        mac: found.own_mac,
        ip: found.source_ip,
        addresses: Vec::new(),
        port: choice.port,
    };
    Ok((local, Remote { mac: found.next_hop_mac, ip, port: remote_port }))
}

/// This end alone, for roles that listen: the named interface, any address of the host; with AF_XDP, any of the
/// interface. A UDP socket for IPv6 also takes datagrams of IPv4 (sysctl net.ipv6.bindv6only).
pub fn listening(choice: &Choice, ipv6: bool) -> Result<Local, NetError> {
    let any_ip =
        if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv4Addr::UNSPECIFIED) };
    let any = Local {
        ifindex: 0,
        ifname: "any".into(),
        mtu_bytes: 1500,
        queue: choice.queue,
        queues: 1,
        mac: [0; 6],
        ip: any_ip,
        addresses: Vec::new(),
        port: choice.port,
    };
    let Some(name) = &choice.ifname else { return Ok(any) };
    let link = net::link_named(name)?;
    Ok(Local {
        ifindex: link.index,
        queues: queue_count(link.index)?,
        mtu_bytes: link.mtu_bytes,
        mac: link.mac.unwrap_or_default(),
        ifname: link.name,
        addresses: net::addresses_like(link.index, any_ip)?
            .into_iter()
            .map(|(address, _)| address)
            .collect(),
        ..any
    })
}

/// Receive queues in use, by the driver's channels if it reports them.
pub(crate) fn queue_count(ifindex: u32) -> Result<u32, NetError> {
    match net::ethtool::channels(ifindex) {
        Ok(channels) => Ok(channels.rx_queues().max(1)),
        Err(_) => Ok(net::link(ifindex)?.rx_queue_count.max(1)),
    }
}
