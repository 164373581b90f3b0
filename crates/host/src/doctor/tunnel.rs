//! Tunnel devices: queues, headroom, size.

use super::{Notes, Scene, Severity, finding};
use crate::net::Link;

fn is_tunnel(link: &Link) -> bool {
    matches!(
        link.kind.as_deref(),
        Some("vxlan" | "gretap" | "ip6gretap" | "geneve" | "gre" | "ip6gre" | "ipip" | "sit")
    )
}

pub(super) fn queues(scene: &Scene, notes: &mut Notes<'_>) {
    let cpus = scene.system.online_cpus().len();
    for link in scene.interfaces().filter(|link| is_tunnel(link)) {
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
                .effect("CPUs send through it side by side")
                .risk("the tunnel has to be made anew")
                .change(
                    format!("make {name} anew with `numtxqueues {cpus}`"),
                    format!("make {name} anew with `numtxqueues 1`"),
                ),
        );
    }
}

pub(super) fn headroom(scene: &Scene, notes: &mut Notes<'_>) {
    for link in scene.interfaces() {
        let Some(detail) = scene.details.get(&link.index) else { continue };
        let name = &link.name;
        if detail.vxlan_bound_to == Some(0) {
            let asks = detail.headroom_bytes.map_or("?".into(), |bytes| bytes.to_string());
            notes.find(
                finding(Severity::Medium, format!("tunnel {name} is bound to no interface"))
                    .read(format!("IFLA_VXLAN_LINK of {name}"), "none")
                    .read(format!("IFLA_HEADROOM of {name}"), format!("{asks} bytes"))
                    .because(
                        "it does not know what headroom the interface below wants, so that whoever \
                         makes a frame leaves too little and it is copied to get its outer headers \
                         (vxlan_config_apply and skb_cow_head of the kernel)",
                    )
                    .effect("a copy less for each frame")
                    .risk("the tunnel goes with its interface, and no longer follows the route")
                    .change(
                        format!("make {name} anew with `dev IF`"),
                        format!("make {name} anew without `dev`"),
                    ),
            );
            continue;
        }
        // GRE devices learn it from the route, when there is one as they are made.
        let below = detail
            .vxlan_bound_to
            .or_else(|| link.peer.filter(|_| is_tunnel(link)).map(|peer| peer.index));
        let below = below.and_then(|index| scene.details.get(&index));
        let (Some(own), Some(lower)) =
            (detail.headroom_bytes, below.and_then(|below| below.headroom_bytes))
        else {
            if is_tunnel(link) && detail.headroom_bytes.is_none() {
                notes.unseen(
                    "the kernel does not tell the headroom of interfaces (Linux 6.15 does)",
                );
            }
            continue;
        };
        if own < lower {
            notes.find(
                finding(Severity::Medium, format!("tunnel {name} asks for too little headroom"))
                    .read(format!("IFLA_HEADROOM of {name}"), format!("{own} bytes"))
                    .read("IFLA_HEADROOM of the interface below", format!("{lower} bytes"))
                    .because("frames are copied to get their outer headers (skb_cow_head)")
                    .effect("a copy less for each frame")
                    .risk("the tunnel has to be made anew")
                    .change(
                        format!("make {name} anew, after its route is there"),
                        "none: it is the same tunnel",
                    ),
            );
        }
    }
}

/// Outer Ethernet, IPv4, UDP and VXLAN headers less the outer Ethernet, which the MTU leaves out.
const VXLAN_BYTES: u32 = 20 + 8 + 8 + 14;

pub(super) fn mtu(scene: &Scene, notes: &mut Notes<'_>) {
    for link in scene.interfaces() {
        let bound = scene.details.get(&link.index).and_then(|detail| detail.vxlan_bound_to);
        let Some(below) = bound.and_then(|index| scene.links.get(&index)) else { continue };
        if link.mtu_bytes + VXLAN_BYTES <= below.mtu_bytes {
            continue;
        }
        let fits = below.mtu_bytes.saturating_sub(VXLAN_BYTES);
        let command = format!("{}ip link set {} mtu", scene.prefix(), link.name);
        notes.find(
            finding(Severity::High, format!("frames of {} do not fit {}", link.name, below.name))
                .read(format!("IFLA_MTU of {}", link.name), link.mtu_bytes.to_string())
                .read(format!("IFLA_MTU of {}", below.name), below.mtu_bytes.to_string())
                .because("outer packets are cut into fragments, or dropped (RFC 7348 section 4.3)")
                .effect("one packet for each frame")
                .risk("hosts behind the tunnel have to know the smaller size")
                .change(format!("{command} {fits}"), format!("{command} {}", link.mtu_bytes)),
        );
    }
}
