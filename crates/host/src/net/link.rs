//! Interfaces and their basic settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

use netlink_bindings::rt_link::{self, Ifinfomsg, IterableLinkAttrs, LinkinfoDataMsg};
use netlink_bindings::{rt_addr, rt_neigh};

use sys::netns::Netns;

use super::error::{NetError, ask};
use super::route::family;

pub type Mac = [u8; 6];

/// An interface of the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Index, unique in its namespace.
    pub index: u32,
    pub name: String,
    /// `None` if it is not Ethernet-like.
    pub mac: Option<Mac>,
    /// Address that the hardware was made with; `None` for most virtual interfaces.
    pub permanent_mac: Option<Mac>,
    /// MTU in bytes, Ethernet header not counted.
    pub mtu_bytes: u32,
    /// Set up by the administrator.
    pub is_up: bool,
    /// Ready to carry traffic.
    pub is_running: bool,
    /// The other end of the wire is there.
    pub has_carrier: bool,
    pub is_loopback: bool,
    /// Kind of a virtual interface, such as `veth`; `None` for hardware and loopback.
    pub kind: Option<String>,
    /// VLAN of a VLAN device.
    pub vlan: Option<u16>,
    /// A TAP device whose program says with each frame what it left to a device (IFF_VNET_HDR), as virtual
    /// machines do: super-frames and unfinished checksums come out of it.
    pub has_offload_header: bool,
    /// Receive queues allocated; those in use are [`super::Channels`].
    pub rx_queue_count: u32,
    /// Transmit queues allocated.
    pub tx_queue_count: u32,
    /// Attached XDP programs, at most one for each mode.
    pub xdp: Vec<AttachedXdp>,
    /// Other end of a veth pair, or the interface below.
    pub peer: Option<Peer>,
}

#[cfg(test)]
impl Link {
    /// An interface that is up, with a MAC address and one queue each way.
    pub(crate) fn of_kind(name: &str, kind: Option<&str>) -> Self {
        Link {
            index: 2,
            name: name.to_owned(),
            mac: Some([2; 6]),
            permanent_mac: None,
            mtu_bytes: 1500,
            is_up: true,
            is_running: true,
            has_carrier: true,
            is_loopback: false,
            kind: kind.map(str::to_owned),
            vlan: None,
            has_offload_header: false,
            rx_queue_count: 1,
            tx_queue_count: 1,
            xdp: Vec::new(),
            peer: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachedXdp {
    pub mode: AttachedMode,
    /// Id of the program, as `bpftool prog` shows it.
    pub program_id: u32,
}

/// Where an attached XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachedMode {
    /// In the generic receive path, on socket buffers.
    Skb,
    /// In the driver.
    Native,
    /// On the card.
    Offloaded,
}

/// Other end of a veth pair, or the interface below a virtual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Index in its own namespace.
    pub index: u32,
    /// Id of the peer's namespace in this one; `None` if it is this one.
    pub netns_id: Option<i32>,
}

impl Link {
    fn decode(header: &Ifinfomsg, attributes: &IterableLinkAttrs<'_>) -> Self {
        let has = |flag: i32| header.ifi_flags & flag as u32 != 0;
        let detail = attributes.get_linkinfo().ok();
        let kind = detail.as_ref().and_then(|detail| detail.get_kind().ok());
        let (vlan, has_offload_header) = match detail
            .as_ref()
            .and_then(|detail| detail.get_data().ok())
        {
            Some(LinkinfoDataMsg::Vlan(vlan)) => (vlan.get_id().ok(), false),
            Some(LinkinfoDataMsg::Tun(tun)) => (None, tun.get_vnet_hdr().is_ok_and(|on| on != 0)),
            _ => (None, false),
        };
        let peer = attributes.get_link().ok().filter(|&index| index != 0).map(|index| Peer {
            index,
            netns_id: attributes.get_link_netnsid().ok().filter(|&id| id >= 0),
        });
        Link {
            index: header.ifi_index as u32,
            name: attributes
                .get_ifname()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            mac: attributes.get_address().ok().and_then(|bytes| bytes.try_into().ok()),
            permanent_mac: attributes.get_perm_address().ok().and_then(|b| b.try_into().ok()),
            mtu_bytes: attributes.get_mtu().unwrap_or_default(),
            is_up: has(libc::IFF_UP),
            is_running: has(libc::IFF_RUNNING),
            has_carrier: attributes.get_carrier().is_ok_and(|carrier| carrier != 0),
            is_loopback: has(libc::IFF_LOOPBACK),
            kind: kind.map(|kind| kind.to_string_lossy().into_owned()),
            vlan,
            has_offload_header,
            rx_queue_count: attributes.get_num_rx_queues().unwrap_or(1),
            tx_queue_count: attributes.get_num_tx_queues().unwrap_or(1),
            xdp: attached_xdp(attributes),
            peer,
        }
    }
}

fn attached_xdp(attributes: &IterableLinkAttrs<'_>) -> Vec<AttachedXdp> {
    let Ok(xdp) = attributes.get_xdp() else {
        return Vec::new();
    };
    // One program of each mode may be attached. The kernel always reports the id for each mode, and
    // the plain id in addition if there is one program.
    [
        (AttachedMode::Native, xdp.get_drv_prog_id()),
        (AttachedMode::Skb, xdp.get_skb_prog_id()),
        (AttachedMode::Offloaded, xdp.get_hw_prog_id()),
    ]
    .into_iter()
    .filter_map(|(mode, id)| {
        id.ok().filter(|&id| id != 0).map(|program_id| AttachedXdp { mode, program_id })
    })
    .collect()
}

/// All interfaces of this namespace, in the kernel's order.
pub fn links() -> Result<Vec<Link>, NetError> {
    ask("listing interfaces", |socket| {
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
        let mut replies = socket.request(&request)?;
        let mut links = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            links.push(Link::decode(&header, &attributes));
        }
        Ok(links)
    })
}

pub fn link(index: u32) -> Result<Link, NetError> {
    get(&header_for(index), None).map_err(|error| absent(error, &format!("of index {index}")))
}

pub fn link_named(name: &str) -> Result<Link, NetError> {
    // The kernel refuses a longer name as out of range, which would read as an internal failure.
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(NetError::NoInterface { interface: name.to_owned() });
    }
    get(&Ifinfomsg::new(), Some(name)).map_err(|error| absent(error, name))
}

fn get(header: &Ifinfomsg, name: Option<&str>) -> Result<Link, NetError> {
    ask("reading an interface", |socket| {
        let mut request = rt_link::Request::new().op_getlink_do(header);
        if let Some(name) = name {
            request.encode().push_ifname_bytes(name.as_bytes());
        }
        let mut reply = socket.request(&request)?;
        let (header, attributes) = reply.recv_one()?;
        Ok(Link::decode(&header, &attributes))
    })
}

/// The other end of an interface, which may be in another namespace; that needs CAP_NET_ADMIN there.
pub fn link_of(peer: Peer) -> Result<Link, NetError> {
    ask(format!("reading interface {} at the other end", peer.index), |socket| {
        let header = header_for(peer.index);
        let mut request = rt_link::Request::new().op_getlink_do(&header);
        if let Some(netns_id) = peer.netns_id {
            request.encode().push_target_netnsid(netns_id);
        }
        let mut reply = socket.request(&request)?;
        let (header, attributes) = reply.recv_one()?;
        Ok(Link::decode(&header, &attributes))
    })
}

/// Maps the kernel's "no such device" to [`NetError::NoInterface`].
fn absent(error: NetError, interface: &str) -> NetError {
    match &error {
        NetError::Kernel { source, .. }
            if source.as_io_error().raw_os_error() == Some(libc::ENODEV) =>
        {
            NetError::NoInterface { interface: interface.to_owned() }
        }
        _ => error,
    }
}

pub(crate) fn header_for(index: u32) -> Ifinfomsg {
    Ifinfomsg { ifi_index: index as i32, ..Ifinfomsg::new() }
}

/// Frames that an interface has dropped since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkDrops {
    /// Arrived while the card had no buffer.
    pub rx_missed: u64,
    /// Received, and dropped by the driver or the kernel.
    pub rx_dropped: u64,
    /// Not sent by the driver or the kernel.
    pub tx_dropped: u64,
}

/// Frames that an interface has dropped.
///
/// Source: struct rtnl_link_stats64, include/uapi/linux/if_link.h.
pub fn link_drops(index: u32) -> Result<LinkDrops, NetError> {
    ask(format!("reading the counters of interface {index}"), |socket| {
        let request = rt_link::Request::new().op_getlink_do(&header_for(index));
        let mut reply = socket.request(&request)?;
        let (_, attributes) = reply.recv_one()?;
        let counts = attributes.get_stats64()?;
        Ok(LinkDrops {
            rx_missed: counts.rx_missed_errors,
            rx_dropped: counts.rx_dropped,
            tx_dropped: counts.tx_dropped,
        })
    })
}

/// Counters of all interfaces of this namespace: interface, name as in `/sys/class/net/IF/statistics`, count.
pub fn link_counters() -> Result<Vec<(String, &'static str, u64)>, NetError> {
    ask("reading the counters of interfaces", |socket| {
        let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::new());
        let mut replies = socket.request(&request)?;
        let mut counters = Vec::new();
        while let Some((_, attributes)) = replies.recv().transpose()? {
            let name = attributes.get_ifname()?.to_string_lossy().into_owned();
            let Ok(counts) = attributes.get_stats64() else { continue };
            let rows = [
                ("rx_packets", counts.rx_packets),
                ("tx_packets", counts.tx_packets),
                ("rx_bytes", counts.rx_bytes),
                ("tx_bytes", counts.tx_bytes),
                ("rx_errors", counts.rx_errors),
                ("tx_errors", counts.tx_errors),
                ("rx_dropped", counts.rx_dropped),
                ("tx_dropped", counts.tx_dropped),
                ("multicast", counts.multicast),
                ("collisions", counts.collisions),
                ("rx_length_errors", counts.rx_length_errors),
                ("rx_over_errors", counts.rx_over_errors),
                ("rx_crc_errors", counts.rx_crc_errors),
                ("rx_frame_errors", counts.rx_frame_errors),
                ("rx_fifo_errors", counts.rx_fifo_errors),
                ("rx_missed_errors", counts.rx_missed_errors),
                ("tx_aborted_errors", counts.tx_aborted_errors),
                ("tx_carrier_errors", counts.tx_carrier_errors),
                ("tx_fifo_errors", counts.tx_fifo_errors),
                ("rx_nohandler", counts.rx_nohandler),
                ("rx_otherhost_dropped", counts.rx_otherhost_dropped),
                ("carrier_changes", attributes.get_carrier_changes().map_or(0, u64::from)),
            ];
            counters.extend(rows.map(|(row, count)| (name.clone(), row, count)));
        }
        Ok(counters)
    })
}

pub fn set_up(index: u32, up: bool) -> Result<(), NetError> {
    let flag = libc::IFF_UP as u32;
    let header =
        Ifinfomsg { ifi_flags: if up { flag } else { 0 }, ifi_change: flag, ..header_for(index) };
    let what = format!("setting interface {index} {}", if up { "up" } else { "down" });
    ask(what, |socket| socket.request(&rt_link::Request::new().op_newlink_do(&header))?.recv_ack())
}

pub fn set_mtu(index: u32, mtu_bytes: u32) -> Result<(), NetError> {
    ask(format!("setting the MTU of interface {index} to {mtu_bytes}"), |socket| {
        let mut request = rt_link::Request::new().op_newlink_do(&header_for(index));
        request.encode().push_mtu(mtu_bytes);
        socket.request(&request)?.recv_ack()
    })
}

/// Moves an interface to another namespace, where it is down and has no address. Its index may change.
pub fn move_to(index: u32, netns: &Netns) -> Result<(), NetError> {
    ask(format!("moving interface {index} to another namespace"), |socket| {
        let mut request = rt_link::Request::new().op_newlink_do(&header_for(index));
        request.encode().push_net_ns_fd(netns.as_fd().as_raw_fd() as u32);
        socket.request(&request)?.recv_ack()
    })
}

/// Deletes a virtual interface (and its peer, for a veth).
pub fn delete(index: u32) -> Result<(), NetError> {
    ask(format!("deleting interface {index}"), |socket| {
        socket.request(&rt_link::Request::new().op_dellink_do(&header_for(index)))?.recv_ack()
    })
}

/// Adds an address with a prefix of `prefix` bits; the kernel adds the route to that network. No other
/// host is asked if it has an IPv6 address already; the kernel enters the address's own route in the background.
pub fn add_address(index: u32, ip: impl Into<IpAddr>, prefix: u8) -> Result<(), NetError> {
    let ip = ip.into();
    ask(format!("adding {ip}/{prefix} to interface {index}"), |socket| {
        let header = rt_addr::Ifaddrmsg {
            ifa_family: family(ip),
            ifa_prefixlen: prefix,
            ifa_flags: if ip.is_ipv6() { libc::IFA_F_NODAD as u8 } else { 0 },
            ifa_index: index,
            ..Default::default()
        };
        let mut request = rt_addr::Request::new().set_create().set_excl().op_newaddr_do(&header);
        request.encode().push_local(ip).push_address(ip);
        socket.request(&request)?.recv_ack()
    })
}

/// Returns the IPv4 addresses of an interface with their prefix lengths, in the kernel's order.
pub fn addresses(index: u32) -> Result<Vec<(Ipv4Addr, u8)>, NetError> {
    Ok(addresses_like(index, Ipv4Addr::UNSPECIFIED.into())?
        .into_iter()
        .filter_map(|(ip, prefix)| match ip {
            IpAddr::V4(ip) => Some((ip, prefix)),
            IpAddr::V6(_) => None,
        })
        .collect())
}

/// As [`addresses`], of the IP version of `like`.
pub fn addresses_like(index: u32, like: IpAddr) -> Result<Vec<(IpAddr, u8)>, NetError> {
    ask(format!("listing the addresses of interface {index}"), |socket| {
        let header = rt_addr::Ifaddrmsg { ifa_family: family(like), ..Default::default() };
        let request = rt_addr::Request::new().op_getaddr_dump(&header);
        let mut replies = socket.request(&request)?;
        let mut addresses = Vec::new();
        while let Some((header, attributes)) = replies.recv().transpose()? {
            // The address is that of the far end where there are two.
            let own = attributes.get_local().or_else(|_| attributes.get_address());
            if let (true, Ok(ip)) = (header.ifa_index == index, own) {
                addresses.push((ip, header.ifa_prefixlen));
            }
        }
        Ok(addresses)
    })
}

/// Addresses of an interface at which other hosts can reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reachable {
    /// Of IPv4 first, each version in the kernel's order; without those of the link alone.
    pub addresses: Vec<IpAddr>,
    /// True if the kernel still looks for a duplicate of another address.
    pub is_tentative: bool,
}

/// Returns the addresses of an interface, of both IP versions, at which other hosts can reach it now.
pub fn reachable(index: u32) -> Result<Reachable, NetError> {
    let mut found = Reachable::default();
    for version in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
        ask(format!("listing the addresses of interface {index}"), |socket| {
            let header = rt_addr::Ifaddrmsg { ifa_family: family(version), ..Default::default() };
            let request = rt_addr::Request::new().op_getaddr_dump(&header);
            let mut replies = socket.request(&request)?;
            while let Some((header, attributes)) = replies.recv().transpose()? {
                let own = attributes.get_local().or_else(|_| attributes.get_address());
                let (true, Ok(ip)) = (header.ifa_index == index, own) else { continue };
                // A kernel without IPv6 answers with addresses of IPv4.
                let is_asked_for = ip.is_ipv4() == version.is_ipv4();
                let is_of_link = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
                // Source: include/uapi/linux/if_addr.h; both are in the first eight bits.
                let has = |flag: u32| u32::from(header.ifa_flags) & flag != 0;
                if !is_asked_for || is_of_link || has(libc::IFA_F_DADFAILED) {
                    continue;
                }
                if has(libc::IFA_F_TENTATIVE) && !has(libc::IFA_F_OPTIMISTIC) {
                    found.is_tentative = true
                } else {
                    found.addresses.push(ip)
                }
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Adds a permanent neighbour entry, replacing an existing one: the address is never
/// resolved.
pub fn set_neighbour(index: u32, ip: impl Into<IpAddr>, mac: Mac) -> Result<(), NetError> {
    let ip = ip.into();
    ask(format!("entering neighbour {ip} of interface {index}"), |socket| {
        let header = rt_neigh::Ndmsg {
            ndm_family: family(ip),
            ndm_ifindex: index as i32,
            ndm_state: rt_neigh::NudState::Permanent as u16,
            ..Default::default()
        };
        let mut request =
            rt_neigh::Request::new().set_create().set_replace().op_newneigh_do(&header);
        request.encode().push_dst(ip).push_lladdr(&mac);
        socket.request(&request)?.recv_ack()
    })
}
