//! VXLAN, gretap and VLAN devices and bridges, the parts of the kernel's own forwarder.

use std::net::Ipv4Addr;

use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{finalize_nested_header, push_header, push_nested_header};

use super::error::{NetError, ask};
use super::link::{Mac, header_for, link_named};

#[derive(Debug, Clone, Copy)]
pub struct VxlanSpec<'a> {
    /// Name in the calling thread's namespace.
    pub name: &'a str,
    /// `None` lets the kernel choose.
    pub mac: Option<Mac>,
    /// Network identifier, 24 bits.
    pub vni: u32,
    pub local: Ipv4Addr,
    /// Remote address for all frames.
    pub remote: Ipv4Addr,
    /// UDP port of both ends.
    pub port: u16,
    /// Interface that it is bound to. Unbound, the kernel learns the headroom that the interface needs
    /// only from the route of each packet, too late to request it.
    pub bound_to: Option<u32>,
    /// Transmit queues, at least 1.
    pub tx_queues: u32,
    /// MTU in bytes, inner Ethernet header not counted.
    pub mtu_bytes: u32,
}

const IFLA_INFO_DATA: u16 = 2;
/// Attributes of IFLA_INFO_DATA.
///
/// Source: linux/if_link.h, enum of IFLA_VXLAN_*.
mod vxlan {
    pub(super) const ID: u16 = 1;
    pub(super) const GROUP: u16 = 2;
    pub(super) const LINK: u16 = 3;
    pub(super) const LOCAL: u16 = 4;
    pub(super) const PORT: u16 = 15;
    pub(super) const UDP_CSUM: u16 = 18;
}

/// Creates a VXLAN device, which is down, and returns its index.
///
/// Its outer UDP checksum is zero, as RFC 7348 section 5 requires.
pub fn create_vxlan(spec: &VxlanSpec<'_>) -> Result<u32, NetError> {
    ask(format!("making the VXLAN device {}", spec.name), |socket| {
        let mut request =
            rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        let mut attributes = request
            .encode()
            .push_ifname_bytes(spec.name.as_bytes())
            .push_mtu(spec.mtu_bytes)
            .push_num_tx_queues(spec.tx_queues.max(1));
        if let Some(mac) = &spec.mac {
            attributes = attributes.push_address(mac);
        }
        let mut detail = attributes.nested_linkinfo().push_kind(c"vxlan");
        // netlink-bindings has no attributes of VXLAN.
        let bytes = detail.as_vec_mut();
        let data = push_nested_header(bytes, IFLA_INFO_DATA);
        put(bytes, vxlan::ID, &spec.vni.to_ne_bytes());
        put(bytes, vxlan::LOCAL, &spec.local.octets());
        put(bytes, vxlan::GROUP, &spec.remote.octets());
        put(bytes, vxlan::PORT, &spec.port.to_be_bytes());
        put(bytes, vxlan::UDP_CSUM, &[0]);
        if let Some(index) = spec.bound_to {
            put(bytes, vxlan::LINK, &index.to_ne_bytes());
        }
        finalize_nested_header(bytes, data);
        drop(detail);
        socket.request(&request)?.recv_ack()
    })?;
    Ok(link_named(spec.name)?.index)
}

/// Creates a bridge, which is down, and returns its index. Its ports forward at once, without
/// spanning tree.
pub fn create_bridge(name: &str) -> Result<u32, NetError> {
    ask(format!("making the bridge {name}"), |socket| {
        let mut request =
            rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        let attributes = request.encode().push_ifname_bytes(name.as_bytes());
        drop(attributes.nested_linkinfo().push_kind(c"bridge"));
        socket.request(&request)?.recv_ack()
    })?;
    Ok(link_named(name)?.index)
}

/// Creates the device of a VLAN on an interface, which is down, and returns its index. Its MTU is that of the
/// interface.
///
/// Errors: [`NetError::Unsupported`] without the kernel's module 8021q.
pub fn create_vlan(name: &str, on: u32, vlan: u16) -> Result<u32, NetError> {
    ask(format!("making the VLAN device {name}"), |socket| {
        let mut request =
            rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        let attributes = request.encode().push_ifname_bytes(name.as_bytes()).push_link(on);
        drop(attributes.nested_linkinfo().nested_data_vlan().push_id(vlan));
        socket.request(&request)?.recv_ack()
    })?;
    Ok(link_named(name)?.index)
}

/// A gretap device without a key.
#[derive(Debug, Clone, Copy)]
pub struct GretapSpec<'a> {
    /// Name in the calling thread's namespace.
    pub name: &'a str,
    pub local: Ipv4Addr,
    pub remote: Ipv4Addr,
    /// Numbers the packets that it sends; it takes packets with and without numbers.
    pub has_sequence: bool,
    /// Interface that it is bound to.
    pub bound_to: Option<u32>,
    /// MTU in bytes, inner Ethernet header not counted.
    pub mtu_bytes: u32,
}

/// Attributes of IFLA_INFO_DATA, and a flag of them.
///
/// Source: linux/if_tunnel.h, enum of IFLA_GRE_*, GRE_SEQ.
mod gretap {
    pub(super) const LINK: u16 = 1;
    pub(super) const FLAGS_OUT: u16 = 3;
    pub(super) const LOCAL: u16 = 6;
    pub(super) const REMOTE: u16 = 7;
    pub(super) const SEQUENCE: u16 = 0x1000;
}

/// Creates a gretap device, which is down, and returns its index.
///
/// Errors: [`NetError::Unsupported`] without the kernel's module ip_gre.
pub fn create_gretap(spec: &GretapSpec<'_>) -> Result<u32, NetError> {
    ask(format!("making the gretap device {}", spec.name), |socket| {
        let mut request =
            rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        let attributes =
            request.encode().push_ifname_bytes(spec.name.as_bytes()).push_mtu(spec.mtu_bytes);
        let mut detail = attributes.nested_linkinfo().push_kind(c"gretap");
        // netlink-bindings has no attributes of gretap.
        let bytes = detail.as_vec_mut();
        let data = push_nested_header(bytes, IFLA_INFO_DATA);
        put(bytes, gretap::LOCAL, &spec.local.octets());
        put(bytes, gretap::REMOTE, &spec.remote.octets());
        if spec.has_sequence {
            put(bytes, gretap::FLAGS_OUT, &gretap::SEQUENCE.to_be_bytes());
        }
        if let Some(index) = spec.bound_to {
            put(bytes, gretap::LINK, &index.to_ne_bytes());
        }
        finalize_nested_header(bytes, data);
        drop(detail);
        socket.request(&request)?.recv_ack()
    })?;
    Ok(link_named(spec.name)?.index)
}

/// Makes an interface a port of a bridge; `None` removes it from its bridge.
pub fn set_master(index: u32, bridge: Option<u32>) -> Result<(), NetError> {
    ask(format!("putting interface {index} into a bridge"), |socket| {
        let mut request = rt_link::Request::new().op_newlink_do(&header_for(index));
        request.encode().push_master(bridge.unwrap_or(0));
        socket.request(&request)?.recv_ack()
    })
}

fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    push_header(bytes, kind, value.len() as u16);
    bytes.extend_from_slice(value);
}
