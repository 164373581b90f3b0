//! veth pairs.

use netlink_bindings::rt_link::{self, Ifinfomsg, PushLinkAttrs};
use netlink_bindings::traits::Pusher;
use netlink_bindings::utils::{finalize_nested_header, push_nested_header};
use std::os::fd::{AsFd, AsRawFd};
use sys::netns::Netns;

use super::error::{NetError, ask};
use super::link::Mac;

#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    pub netns: &'a Netns,
    pub name: &'a str,
    pub mac: Mac,
    /// Transmit and receive queues, at least 1.
    pub queues: u32,
    pub mtu_bytes: u32,
}

/// Creates a veth pair with each end in its own namespace; both are down.
///
/// No interface appears in the caller's namespace at any time.
///
/// Source: VETH_INFO_PEER of linux/veth.h; IFLA_NET_NS_FD of rtnetlink(7).
pub fn create_veth(one: &VethEnd<'_>, other: &VethEnd<'_>) -> Result<(), NetError> {
    let what = format!("making the veth pair {} and {}", one.name, other.name);
    ask(what, |socket| {
        let mut request =
            rt_link::Request::new().set_create().set_excl().op_newlink_do(&Ifinfomsg::new());
        let mut detail = encode(request.encode(), one).nested_linkinfo().push_kind(c"veth");
        // netlink-bindings has no attributes of veth: a nested header, a second ifinfomsg and the
        // attributes of the other end.
        let bytes = detail.as_vec_mut();
        let data = push_nested_header(bytes, IFLA_INFO_DATA);
        let peer = push_nested_header(bytes, VETH_INFO_PEER);
        bytes.extend_from_slice(Ifinfomsg::new().as_slice());
        encode(PushLinkAttrs::new(&mut *bytes), other).end_nested();
        finalize_nested_header(bytes, peer);
        finalize_nested_header(bytes, data);
        drop(detail);
        socket.request(&request)?.recv_ack()
    })
}

const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

fn encode<P: Pusher>(attributes: PushLinkAttrs<P>, end: &VethEnd<'_>) -> PushLinkAttrs<P> {
    attributes
        .push_ifname_bytes(end.name.as_bytes())
        .push_address(&end.mac)
        .push_mtu(end.mtu_bytes)
        .push_num_tx_queues(end.queues)
        .push_num_rx_queues(end.queues)
        .push_net_ns_fd(end.netns.as_fd().as_raw_fd() as u32)
}
