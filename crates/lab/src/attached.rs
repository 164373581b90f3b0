//! A temporary namespace, attached by a wire to an existing one.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use sys::netns::Netns;

use super::End;
use super::end::{EndSpec, join, quiet_netns};
use super::error::LabError;
use host::net::{self, ethtool};

/// Direction of the packets between an attached namespace and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Packets come from the attached namespace: 198.18.0.2/24, on `wp-annex-in` in the place.
    Source,
    /// Packets go to the attached namespace: 198.18.1.2/24, on `wp-annex-out` in the place.
    Sink,
}

/// A temporary namespace, joined by a wire to an existing one, the place.
///
/// The place gets one interface with an address of the block for measurements; with `forwards` it
/// forwards to the place's other interfaces. The interface disappears with the temporary namespace,
/// and so with the process, however it ends; no other setting of the place is changed.
///
/// Source of the addresses: RFC 2544 appendix C.2.2, 198.18.0.0/15.
#[derive(Debug)]
pub struct AttachedNamespace {
    pub own: End,
    pub in_place: End,
    /// Removes the wire when dropped.
    pub wire: Wire,
}

/// The wire of an [`AttachedNamespace`], removed on drop. The kernel would remove it as well, but later.
#[derive(Debug)]
pub struct Wire {
    place: Netns,
    ifindex: u32,
}

impl Drop for Wire {
    fn drop(&mut self) {
        // It may have been removed already.
        let _gone_already = self.place.run(|| net::delete(self.ifindex));
    }
}

impl AttachedNamespace {
    /// Creates the namespace; its wire is ready to carry traffic on return.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new(place: &Netns, side: Side, forwards: bool) -> Result<Self, LabError> {
        let own_netns = quiet_netns()?;
        let (names, net) = match side {
            Side::Source => (["wp-source", "wp-annex-in"], 0),
            Side::Sink => (["wp-sink", "wp-annex-out"], 1),
        };
        let spec = |name: usize, host: u8| EndSpec {
            ifname: names[name],
            mac: [0x02, b'w', b'p', 1, net, host],
            ip: Some(Ipv4Addr::new(198, 18, net, host)),
            ipv6: None,
            queues: 1,
            mtu_bytes: 1500,
            gro: false,
            tso: true,
            vlan: None,
        };
        let [own, in_place] = join((&own_netns, &spec(0, 2)), (place, &spec(1, 1)))?;
        let wire = Wire { place: place.try_clone()?, ifindex: in_place.ifindex };
        // Arriving packets have senders that the attached namespace has no route to.
        own_netns.run(|| write_all(["all", own.ifname.as_str()], "rp_filter", "0"))??;
        if forwards {
            place.run(|| write_all([in_place.ifname.as_str()], "forwarding", "1"))??;
        }
        own_netns.run(|| net::set_neighbour(own.ifindex, in_place.ip, in_place.mac))??;
        place.run(|| net::set_neighbour(in_place.ifindex, own.ip, own.mac))??;
        Ok(AttachedNamespace { own, in_place, wire })
    }
}

impl End {
    /// An existing interface with its first IPv4 address.
    ///
    /// Errors: [`LabError::NoAddress`] without an address; [`LabError::Net`] without the interface.
    pub fn existing(netns: Netns, ifname: &str) -> Result<End, LabError> {
        let (link, addresses, channels) = netns.run(|| {
            let link = net::link_named(ifname)?;
            let addresses = net::addresses(link.index)?;
            let channels = ethtool::channels(link.index).map(|channels| channels.rx_queues());
            Ok::<_, LabError>((link, addresses, channels))
        })??;
        let (ip, prefix) = addresses
            .first()
            .copied()
            .ok_or_else(|| LabError::NoAddress { ifname: ifname.to_owned() })?;
        Ok(End {
            netns,
            ifname: link.name,
            ifindex: link.index,
            ip_ifindex: link.index,
            mac: link.mac.unwrap_or_default(),
            ip,
            ipv6: None,
            prefix,
            // A device may have more queues than are in use.
            queues: channels.unwrap_or(link.rx_queue_count).max(1),
            mtu_bytes: link.mtu_bytes,
        })
    }

    /// True if packets that arrive at this end may leave by another.
    pub fn forwards(&self) -> Result<bool, LabError> {
        let path = format!("/proc/sys/net/ipv4/conf/{}/forwarding", self.ifname);
        let read = self.run(|| fs::read_to_string(&path))?;
        let text = read.map_err(|source| LabError::Sysctl { path, source })?;
        Ok(text.trim() != "0")
    }
}

fn write_all<const N: usize>(of: [&str; N], name: &str, value: &str) -> Result<(), LabError> {
    of.into_iter().try_for_each(|interface| {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/{name}");
        fs::write(&path, value).map_err(|source: io::Error| LabError::Sysctl { path, source })
    })
}
