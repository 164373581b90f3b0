//! Interfaces, routes and neighbours of the calling thread's network namespace.
//!
//! Each request uses a new rtnetlink or ethtool netlink socket, so that a call inside
//! [`sys::netns::Netns::run`] applies to that namespace.

mod bridge;
mod connections;
mod error;
pub mod ethtool;
mod inspect;
mod link;
mod napi;
mod netfilter;
pub mod nftables;
mod packet_sockets;
mod qdisc;
mod route;
mod route_entry;
mod rss;
mod rules;
mod snmp;
mod sockets;
mod tables;
mod tunnel;
mod veth;
mod watch;
mod xdp_hints;

pub use bridge::{bridge_has_querier, bridge_neighbours};
pub use connections::{CONNECTIONS_MAX, Connection, FlowTuple, connections, flowtable_devices};
pub use error::NetError;
pub use ethtool::Channels;
pub use inspect::{LinkDetail, details};
pub use link::{
    AttachedMode, AttachedXdp, Link, LinkDrops, Mac, Peer, Reachable, add_address, addresses,
    addresses_like, delete, link, link_counters, link_drops, link_named, link_of, links, move_to,
    reachable, set_mtu, set_neighbour, set_up,
};
pub use napi::{Napi, NapiSettings, napi_instances, napi_of_rx_queue, set_napi};
pub(crate) use napi::{napi_message, napi_settings_are_offered};
pub use netfilter::{Hook, create_empty_hooks, delete_table};
pub use packet_sockets::{PacketSocket, packet_sockets};
pub(crate) use qdisc::rate_text;
pub use qdisc::{
    Qdisc, QdiscLimits, QdiscState, qdisc_drop_count, qdiscs, remove_root_qdisc, root_qdisc,
    set_root_fifo, set_root_qdisc,
};
pub use route::{Resolved, Route, add_default_route, neighbour, resolve, route_by, route_to};
pub use route_entry::{RouteEntry, RouteMetric, route_entry, routes_by, set_route_metric};
pub use rss::{FlowKind, hash_fields, rss_table, set_hash_fields, set_rss_table};
pub use rules::{FlowRule, delete_flow_rule, flow_rules, insert_flow_rule};
pub use snmp::{snmp_counter, snmp_table, snmp6_counter};
pub use sockets::{
    SocketMemory, TcpSocket, TcpState, TcpTimer, UdpSocket, close_connections, tcp_sockets,
    udp_sockets,
};
pub use tables::{
    InterfaceAddress, Neighbour, NeighbourState, TableRoute, all_addresses, all_routes, neighbours,
    route_from,
};
pub use tunnel::{
    GretapSpec, VxlanSpec, create_bridge, create_gretap, create_vlan, create_vxlan, set_master,
};
pub use veth::{VethEnd, create_veth};
pub use watch::{ChangeWatch, LinkEvent, LinkWatch};
pub use xdp_hints::{XdpHints, xdp_hints};
