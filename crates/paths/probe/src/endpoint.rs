//! Resolves the addresses of both ends from the host's routes and neighbours.

use std::net::Ipv4Addr;

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
/// namespace. The next hop's MAC address is resolved by ARP if needed.
pub fn towards(
    ip: Ipv4Addr,
    remote_port: u16,
    choice: &Choice,
) -> Result<(Local, Remote), NetError> {
    let found = net::resolve(ip, choice.ifname.as_deref())?;
    let local = Local {
        ifindex: found.ifindex,
        ifname: found.ifname,
        mtu_bytes: found.mtu_bytes,
        queue: choice.queue,
        queues: queues_of(found.ifindex)?,
        mac: found.own_mac,
        ip: found.source_ip,
        addresses: Vec::new(),
        port: choice.port,
    };
    Ok((local, Remote { mac: found.next_hop_mac, ip, port: remote_port }))
}

/// This end alone, for roles that listen: the named interface, any address of the host; with AF_XDP, any of the
/// interface.
pub fn listening(choice: &Choice) -> Result<Local, NetError> {
    let any = Local {
        ifindex: 0,
        ifname: "any".into(),
        mtu_bytes: 1500,
        queue: choice.queue,
        queues: 1,
        mac: [0; 6],
        ip: Ipv4Addr::UNSPECIFIED,
        addresses: Vec::new(),
        port: choice.port,
    };
    let Some(name) = &choice.ifname else { return Ok(any) };
    let link = net::link_named(name)?;
    Ok(Local {
        ifindex: link.index,
        queues: queues_of(link.index)?,
        mtu_bytes: link.mtu_bytes,
        mac: link.mac.unwrap_or_default(),
        ifname: link.name,
        addresses: net::addresses(link.index)?.into_iter().map(|(address, _)| address).collect(),
        ..any
    })
}

/// Receive queues in use, by the driver's channels if it reports them.
fn queues_of(ifindex: u32) -> Result<u32, NetError> {
    match net::ethtool::channels(ifindex) {
        Ok(channels) => Ok(channels.rx_queues().max(1)),
        Err(_) => Ok(net::link(ifindex)?.rx_queue_count.max(1)),
    }
}
