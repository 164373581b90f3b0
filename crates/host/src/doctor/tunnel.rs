//! Tunnel devices: queues, headroom, MTU.

use super::finding::{Notes, Severity, finding};
use super::host_view::HostView;
use crate::net::Link;

fn is_tunnel(link: &Link) -> bool {
    matches!(
        link.kind.as_deref(),
        Some("vxlan" | "gretap" | "ip6gretap" | "geneve" | "gre" | "ip6gre" | "ipip" | "sit")
    )
}

/// True if a tunnel of this kind has neither a queueing discipline nor a transmit lock, so that CPUs
/// send through one queue in parallel.
///
/// Source: vxlan_setup and geneve_setup of the kernel (IFF_NO_QUEUE, lltx).
fn is_lockless(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("vxlan" | "geneve"))
}

pub(super) fn queues(view: &HostView, notes: &mut Notes<'_>) {
    let cpus = view.system.online_cpus().len();
    for link in view.interfaces().filter(|link| is_tunnel(link) && !is_lockless(link)) {
        if link.tx_queue_count > 1 || cpus < 2 {
            continue;
        }
        let name = &link.name;
        notes.find(
            finding(Severity::Medium, format!("tunnel {name} has one transmit queue"))
                .read(format!("IFLA_NUM_TX_QUEUES of {name}"), link.tx_queue_count.to_string())
                .read("/sys/devices/system/cpu/online", format!("{cpus} CPUs"))
                .because(
                    "CPUs that send through it share one queue, and the flow's own queue is not \
                     remembered for the device below (ip-link(8), numtxqueues)",
                )
                .effect("CPUs send through it in parallel")
                .risk("the tunnel has to be recreated")
                .change(
                    format!("recreate {name} with `numtxqueues {cpus}`"),
                    format!("recreate {name} with `numtxqueues 1`"),
                ),
        );
    }
}

pub(super) fn headroom(view: &HostView, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        behind_bridge(view, notes, link);
        let Some(detail) = view.details.get(&link.index) else { continue };
        let name = &link.name;
        if detail.vxlan_bound_to == Some(0) {
            let asks = detail.headroom_bytes.map_or("?".into(), |bytes| bytes.to_string());
            // Plain Ethernet needs none: nothing is copied there.
            let below = view.links.values().filter(|link| !is_tunnel(link)).filter_map(|link| {
                Some((view.details.get(&link.index)?.headroom_bytes?, &link.name))
            });
            let most = below.max().filter(|(bytes, _)| *bytes > 0);
            let severity = if most.is_some() { Severity::Medium } else { Severity::Low };
            let lower =
                most.map_or("0 bytes".into(), |(bytes, of)| format!("{bytes} bytes ({of})"));
            notes.find(
                finding(severity, format!("tunnel {name} is bound to no interface"))
                    .read(format!("IFLA_VXLAN_LINK of {name}"), "none")
                    .read(format!("IFLA_HEADROOM of {name}"), format!("{asks} bytes"))
                    .read("largest IFLA_HEADROOM of the other interfaces", lower)
                    .because(
                        "it does not know the headroom that the interface below needs: over one that \
                         needs some (plain Ethernet needs none), frames are allocated with too little \
                         and copied to add their outer headers (vxlan_config_apply and skb_cow_head \
                         of the kernel)",
                    )
                    .effect("saves a copy of each frame")
                    .risk("the tunnel is deleted with its interface, and no longer follows the route")
                    .change(
                        format!("recreate {name} with `dev IF`"),
                        format!("recreate {name} without `dev`"),
                    ),
            );
            continue;
        }
        // GRE devices take it from the route, if there is one when they are created.
        let below = detail
            .vxlan_bound_to
            .or_else(|| link.peer.filter(|_| is_tunnel(link)).map(|peer| peer.index));
        let below = below.and_then(|index| view.details.get(&index));
        let (Some(own), Some(lower)) =
            (detail.headroom_bytes, below.and_then(|below| below.headroom_bytes))
        else {
            if is_tunnel(link) && detail.headroom_bytes.is_none() {
                notes.unseen(
                    "the kernel does not report the headroom of interfaces (Linux 6.15 does; earlier \
                     versions need BTF, CAP_BPF and CAP_PERFMON)",
                );
            }
            continue;
        };
        if own < lower {
            notes.find(
                finding(Severity::Medium, format!("tunnel {name} asks for too little headroom"))
                    .read(format!("IFLA_HEADROOM of {name}"), format!("{own} bytes"))
                    .read("IFLA_HEADROOM of the interface below", format!("{lower} bytes"))
                    .because("frames are copied to add their outer headers (skb_cow_head)")
                    .effect("saves a copy of each frame")
                    .risk("the tunnel has to be recreated")
                    .change(
                        format!("recreate {name} after its route exists"),
                        "none: it is the same tunnel",
                    ),
            );
        }
    }
}

/// Bytes in front of the Ethernet header of a frame that was made for an interface that asks for
/// `needed`.
///
/// Source: linux/netdevice.h, LL_RESERVED_SPACE: in steps of 16 bytes.
fn left_by_sender(needed: u16) -> u32 {
    const ETHERNET_BYTES: u32 = 14;
    const STEP: u32 = 16;
    (ETHERNET_BYTES + u32::from(needed)) / STEP * STEP + STEP - ETHERNET_BYTES
}

/// A bridge passes the headroom that its ports request to all ports once, when a port joins. GRE
/// devices request more later, when a frame meets a changed route.
///
/// Source: br_add_if of net/bridge/br_if.c and ip_tunnel_adj_headroom of net/ipv4/ip_tunnel.c.
fn behind_bridge(view: &HostView, notes: &mut Notes<'_>, tunnel: &Link) {
    let headroom = |index: u32| view.details.get(&index).and_then(|detail| detail.headroom_bytes);
    let bridge = view.details.get(&tunnel.index).and_then(|detail| detail.master);
    let bridge = bridge.and_then(|index| view.links.get(&index)).filter(|_| is_tunnel(tunnel));
    let Some(bridge) = bridge.filter(|bridge| bridge.kind.as_deref() == Some("bridge")) else {
        return;
    };
    let (Some(told), Some(asked)) = (headroom(bridge.index), headroom(tunnel.index)) else {
        return;
    };
    // Only these port types use the bridge's headroom; a network card leaves enough by itself.
    let ports = view.details.values().filter(|port| port.master == Some(bridge.index));
    let mut ports = ports.filter_map(|port| view.links.get(&port.index));
    let obedient = ports.find(|port| matches!(port.kind.as_deref(), Some("veth" | "tun")));
    let left = left_by_sender(told);
    let Some(port) = obedient.filter(|_| left < u32::from(asked)) else { return };
    let (name, bridge) = (&tunnel.name, &bridge.name);
    let command = |to: &str| format!("{}ip link set {name} {to}", view.prefix());
    notes.find(
        finding(
            Severity::Medium,
            format!("frames that bridge {bridge} passes to {name} are copied"),
        )
        .read(format!("needed_headroom of tunnel {name}"), format!("{asked} bytes"))
        .read(
            format!("needed_headroom of bridge {bridge}, as set for its port {}", port.name),
            format!("{told} bytes, which leaves {left} in front of a frame"),
        )
        .because(
            "the tunnel requested less when it joined the bridge; a frame without room for its \
                 outer headers is copied (gre_tap_xmit or vxlan_xmit calls skb_cow_head, and that \
                 pskb_expand_head)",
        )
        .effect("saves a copy of each frame")
        .risk("the bridge briefly stops using the tunnel")
        .change(
            format!("{} && {}", command("nomaster"), command(&format!("master {bridge}"))),
            "none: it is the same tunnel in the same bridge",
        ),
    );
}

/// Outer IPv4, UDP and VXLAN headers and the inner Ethernet header; the MTU excludes the outer one.
const VXLAN_BYTES: u32 = 20 + 8 + 8 + 14;

pub(super) fn mtu(view: &HostView, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        let bound = view.details.get(&link.index).and_then(|detail| detail.vxlan_bound_to);
        let Some(below) = bound.and_then(|index| view.links.get(&index)) else { continue };
        if link.mtu_bytes + VXLAN_BYTES <= below.mtu_bytes {
            continue;
        }
        let fits = below.mtu_bytes.saturating_sub(VXLAN_BYTES);
        let command = format!("{}ip link set {} mtu", view.prefix(), link.name);
        notes.find(
            finding(Severity::High, format!("frames of {} do not fit {}", link.name, below.name))
                .read(format!("IFLA_MTU of {}", link.name), link.mtu_bytes.to_string())
                .read(format!("IFLA_MTU of {}", below.name), below.mtu_bytes.to_string())
                .because("outer packets are fragmented or dropped (RFC 7348 section 4.3)")
                .effect("one packet for each frame")
                .risk("hosts behind the tunnel have to know the smaller size")
                .change(format!("{command} {fits}"), format!("{command} {}", link.mtu_bytes)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_leave_room_in_steps_of_sixteen_bytes() {
        // What a gretap asks for over a card that wants none, and over a virtio one.
        assert_eq!(left_by_sender(38), 50);
        assert_eq!(left_by_sender(50), 66);
        assert_eq!(left_by_sender(0), 2);
    }
}
