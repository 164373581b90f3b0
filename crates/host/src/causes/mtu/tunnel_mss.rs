//! Segments that do not fit after encapsulation.

use super::black_hole::{by_far_end, of_far_end, stuck, way};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Notes, Severity, finding};
use crate::causes::tunnels::is_tunnel;
use crate::net::Link;

pub(super) const CAUSE: Cause = Cause {
    title: "segments do not fit the path of a tunnel",
    symptom: "behind a VPN or overlay some sites and large transfers hang and ping works; or the tunnel is slow and the \
              card below sends fragments",
    evidence: "fragments that this host makes while a tunnel sends (IpFragCreates, tx_packets); sockets by a tunnel that \
               retransmit full segments; MTU of the tunnel and of the interface below",
    remedy: "a smaller MTU of the tunnel, and its clamp on the router: `nft add rule inet filter forward tcp flags syn \
             tcp option maxseg size set rt mtu`",
    undo: "the old MTU; `nft delete rule` with the rule's handle",
    counters: &["IpFragCreates", "Ip6FragCreates", "IpReasmFails"],
    references: &[
        "RFC 4459",
        "cilium/cilium#23917",
        "pia-foss/manual-connections#24",
        "linuxserver/docker-wireguard#166",
    ],
    is_of_forwarding: true,
    ..Cause::new("tunnel-mss", check)
};

/// Bytes of outer headers that leave room for any carrier: IPv6, UDP, VXLAN and Ethernet.
const OVERHEAD_BYTES: u32 = 80;

/// Fragments within a second that are more than chance.
const FRAGMENTS_MIN: u64 = 4;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let made = window.sum(&["IpFragCreates", "Ip6FragCreates"]);
    for tunnel in view.links.values().filter(|link| is_tunnel(link)) {
        let Some(below) = view.below_tunnel(tunnel).filter(|_| made.now >= FRAGMENTS_MIN) else {
            continue;
        };
        let sent_by = |link: &Link| window.link(&link.name, "tx_packets");
        let (sent, outer) = (sent_by(tunnel), sent_by(below));
        // A program's own fragments are cut before the tunnel, and each is one packet below.
        if sent.now * 2 < made.now || outer.now * 2 < sent.now * 3 {
            continue;
        }
        notes.find(
            with_clamp(
                finding(
                    Severity::Medium,
                    format!("{:.0} fragments a second leave this host: frames of tunnel {} do not fit {}", made.per_second(), tunnel.name, below.name),
                )
                .seen(made.confidence())
                .costs(format!("{:.0} fragments a second", made.per_second()))
                .read("/proc/net/snmp and snmp6: FragCreates", made.evidence())
                .read(format!("tx_packets of {}", tunnel.name), sent.evidence())
                .read(format!("tx_packets of {}", below.name), outer.evidence())
                .read(format!("IFLA_MTU of {}", tunnel.name), tunnel.mtu_bytes.to_string())
                .because(
                    "two packets for each frame, both of which have to arrive; many networks drop fragments (RFC 4459)",
                )
                .effect("one packet for each frame"),
                view,
                tunnel,
                below.mtu_bytes,
            ),
        );
    }
    of_sockets(view, window, notes);
}

fn of_sockets(view: &Evidence, window: &Window, notes: &mut Notes<'_>) {
    for (remote, group) in by_far_end(&stuck(window)) {
        let Some(tunnel) = way(view, remote).filter(|link| is_tunnel(link)) else { continue };
        let found = of_far_end(view, window, &group, &format!("tunnel {}", tunnel.name))
            .read(format!("IFLA_MTU of {}", tunnel.name), tunnel.mtu_bytes.to_string());
        notes.find(with_clamp(found, view, tunnel, tunnel.mtu_bytes));
    }
}

/// - `room_bytes`: largest outer packet that may fit.
fn with_clamp(
    found: crate::causes::Finding,
    view: &Evidence,
    tunnel: &Link,
    room_bytes: u32,
) -> crate::causes::Finding {
    let mtu = room_bytes.saturating_sub(OVERHEAD_BYTES).clamp(1280, 1420.max(tunnel.mtu_bytes));
    let command = format!("{}ip link set {} mtu", view.prefix(), tunnel.name);
    found.risk("hosts behind the tunnel have to know the smaller size: a router has to clamp the segments of TCP").change(
        format!(
            "{command} {mtu}; on a router also: {}nft add rule inet filter forward oifname {} tcp flags syn tcp option \
             maxseg size set rt mtu",
            view.prefix(),
            tunnel.name
        ),
        format!("{command} {}; nft delete rule inet filter forward handle N", tunnel.mtu_bytes),
    )
}
