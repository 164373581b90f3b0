//! Entries of connection tracking.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use netlink_bindings::conntrack::{self, IterableConntrackAttrs, IterableTupleAttrs, Nfgenmsg};
use netlink_bindings::nftables;

use super::error::{NetError, ask};

/// Most entries that are read.
pub const CONNECTIONS_MAX: usize = 100_000;

/// Addresses and ports of one direction; ports are 0 for a protocol without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowTuple {
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// A tracked connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// Number of the IP protocol.
    pub protocol: u8,
    /// As the first packet came in, before any translation.
    pub original: FlowTuple,
    /// As an answer comes in.
    pub reply: FlowTuple,
    /// Bits of `enum ip_conntrack_status`.
    pub status: u32,
    /// Time until it expires without a packet, seconds; 0 for an offloaded one.
    pub timeout_s: u32,
}

impl Connection {
    /// Source: linux/netfilter/nf_conntrack_common.h, enum ip_conntrack_status.
    fn has(&self, bit: u32) -> bool {
        self.status & (1 << bit) != 0
    }

    /// A packet of the other direction was seen.
    pub fn is_answered(&self) -> bool {
        self.has(1)
    }

    /// Its packets pass by the rules.
    pub fn is_offloaded(&self) -> bool {
        self.has(14) || self.has(15)
    }

    /// By the card and not by the kernel.
    pub fn is_offloaded_to_card(&self) -> bool {
        self.has(15)
    }

    /// Its destination is translated (DNAT).
    pub fn has_other_destination(&self) -> bool {
        self.reply.source != self.original.destination
    }

    /// Its source is translated (SNAT, masquerade).
    pub fn has_other_source(&self) -> bool {
        self.reply.destination != self.original.source
    }
}

/// Entries of this namespace, at most [`CONNECTIONS_MAX`]. Needs CAP_NET_ADMIN.
pub fn connections() -> Result<Vec<Connection>, NetError> {
    ask("listing the entries of connection tracking", |socket| {
        let request = conntrack::Request::new().op_get_dump(&Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        let mut found = Vec::new();
        while let Some((_, attributes)) = replies.recv().transpose()? {
            found.extend(connection(&attributes));
            if found.len() >= CONNECTIONS_MAX {
                break;
            }
        }
        Ok(found)
    })
}

/// Interfaces of all flowtables, by which flows pass the rules. Needs CAP_NET_ADMIN.
pub fn flowtable_devices() -> Result<BTreeSet<String>, NetError> {
    ask("listing the flowtables of nftables", |socket| {
        let request = nftables::Request::new().op_getflowtable_dump(&nftables::Nfgenmsg::new());
        let mut replies = socket.request(&request)?;
        let mut devices = BTreeSet::new();
        while let Some((_, attributes)) = replies.recv().transpose()? {
            let Ok(list) = attributes.get_hook().and_then(|hook| hook.get_devs()) else { continue };
            devices.extend(list.get_name().map(|name| name.to_string_lossy().into_owned()));
        }
        Ok(devices)
    })
}

fn connection(attributes: &IterableConntrackAttrs<'_>) -> Option<Connection> {
    let (protocol, original) = tuple(&attributes.get_tuple_orig().ok()?)?;
    let (_, reply) = tuple(&attributes.get_tuple_reply().ok()?)?;
    let (status, timeout_s) =
        (attributes.get_status().unwrap_or(0), attributes.get_timeout().unwrap_or(0));
    Some(Connection { protocol, original, reply, status, timeout_s })
}

fn tuple(attributes: &IterableTupleAttrs<'_>) -> Option<(u8, FlowTuple)> {
    let ip = attributes.get_tuple_ip().ok()?;
    let protocol = attributes.get_tuple_proto().ok()?;
    let source = ip.get_ip_v4_src().map(IpAddr::V4).or_else(|_| ip.get_ip_v6_src().map(IpAddr::V6));
    let destination =
        ip.get_ip_v4_dst().map(IpAddr::V4).or_else(|_| ip.get_ip_v6_dst().map(IpAddr::V6));
    let (from, to) =
        (protocol.get_proto_src_port().unwrap_or(0), protocol.get_proto_dst_port().unwrap_or(0));
    let tuple = FlowTuple {
        source: SocketAddr::new(source.ok()?, from),
        destination: SocketAddr::new(destination.ok()?, to),
    };
    Some((protocol.get_proto_num().ok()?, tuple))
}
