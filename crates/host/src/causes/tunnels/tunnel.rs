//! Tunnel devices: queues, headroom, MTU.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, FRAMES_MIN, Losses};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::Link;

fn is_tunnel(link: &Link) -> bool {
    matches!(
        link.kind.as_deref(),
        Some("vxlan" | "gretap" | "ip6gretap" | "geneve" | "gre" | "ip6gre" | "ipip" | "sit")
    )
}

pub(super) const QUEUES: Cause = Cause {
    title: "A tunnel device has one transmit queue",
    symptom: "a tunnel forwards no more with more CPUs",
    evidence: "number of transmit queues of GRE and IP-in-IP devices; frames that each CPU sends through them, counted \
               by the observer (`doctor --observe 5s`)",
    remedy: "create it again with `numtxqueues N`, N the number of CPUs",
    undo: "create it again with `numtxqueues 1`",
    references: &["https://man7.org/linux/man-pages/man8/ip-link.8.html"],
    is_of_forwarding: true,
    ..Cause::new("tunnel-queues", queues)
};

pub(super) const HEADROOM: Cause = Cause {
    title: "Frames have no room for a tunnel's outer headers and are copied",
    symptom: "a tunnel costs a `memcpy` for each frame (pskb_expand_head in a profile)",
    evidence: "copies by gre_tap_xmit, vxlan_xmit and their like for the frames that a tunnel sends, counted by the \
               observer (`doctor --observe 5s`); without it needed_headroom of the tunnel, its bridge and the \
               interface below, and then the copies are only possible",
    remedy: "create the tunnel while the route to its far end exists, or with `dev IF`",
    undo: "create it again as it was",
    references: &[
        "https://docs.kernel.org/networking/skbuff.html",
        "linux/netdevice.h: LL_RESERVED_SPACE",
    ],
    is_of_forwarding: true,
    ..Cause::new("tunnel-headroom", headroom)
};

/// True if a tunnel of this kind has neither a queueing discipline nor a transmit lock, so that CPUs
/// send through one queue in parallel.
///
/// Source: vxlan_setup and geneve_setup of the kernel (IFF_NO_QUEUE, lltx).
fn is_lockless(link: &Link) -> bool {
    matches!(link.kind.as_deref(), Some("vxlan" | "geneve"))
}

fn queues(view: &Evidence, notes: &mut Notes<'_>) {
    let cpus = view.system.online_cpus().len();
    for link in view.interfaces().filter(|link| is_tunnel(link) && !is_lockless(link)) {
        if link.tx_queue_count > 1 || cpus < 2 {
            continue;
        }
        let name = &link.name;
        let begun = finding(Severity::Medium, format!("tunnel {name} has one transmit queue"));
        let sent = view.observed_at(link.index).map(|counts| &counts.sent);
        let begun = match sent.filter(|sent| sent.count >= FRAMES_MIN) {
            Some(sent) => begun
                .seen(Confidence::Now)
                .costs(format!("{} frames in the window through one queue", sent.count))
                .read(format!("sent frames (observer): {name}"), sent.text()),
            None => begun,
        };
        notes.find(
            begun
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

/// Bytes that a card's driver leaves in front of a received frame, unless it was written for XDP.
///
/// Source: linux/skbuff.h, NET_SKB_PAD, where a cache line has 64 bytes.
const LEFT_BY_CARD_BYTES: u32 = 64;

/// Headroom that a GRE device asks for where it was made without a route: LL_MAX_HEADER of a kernel with wireless
/// devices.
///
/// Source: ip_tunnel_bind_dev of net/ipv4/ip_tunnel.c; linux/netdevice.h.
const LL_MAX_HEADER_BYTES: u32 = 128;

const ETHERNET_BYTES: u32 = 14;

/// Room that a device reserves in front of its headers, those of Ethernet included.
///
/// Source: linux/netdevice.h, LL_RESERVED_SPACE: in steps of 16 bytes.
fn reserved(needed: u16) -> u32 {
    const STEP: u32 = 16;
    (ETHERNET_BYTES + u32::from(needed)) / STEP * STEP + STEP
}

/// Bytes in front of the Ethernet header of a frame that was made for an interface that asks for `needed`.
fn left_by_sender(needed: u16) -> u32 {
    reserved(needed) - ETHERNET_BYTES
}

/// Headroom without which a tunnel copies a frame, and where that number comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need {
    bytes: u32,
    source: String,
    /// The same after the tunnel is made again, with its route; `None` if that changes nothing.
    made_again_bytes: Option<u32>,
}

/// Returns the headroom without which a tunnel copies a frame; `None` if it is not known.
///
/// Source: gre_tap_xmit (the device's own needed_headroom) of net/ipv4/ip_gre.c; vxlan_build_skb and geneve_build_skb
/// (LL_RESERVED_SPACE of the interface below, and the outer headers).
fn need(
    tunnel: &Link,
    own: Option<u16>,
    lower: Option<(&Link, u16)>,
    is_ipv6: bool,
) -> Option<Need> {
    let ip_bytes = if is_ipv6 { 40 } else { 20 };
    match tunnel.kind.as_deref()? {
        "vxlan" | "geneve" => {
            let (lower, asked) = lower?;
            Some(Need {
                bytes: reserved(asked) + 16 + ip_bytes,
                source: format!("outer headers, and needed_headroom {asked} of {}", lower.name),
                made_again_bytes: None,
            })
        }
        "gretap" | "ip6gretap" => {
            let own = u32::from(own?);
            let source = format!("needed_headroom of tunnel {}", tunnel.name);
            // Made without a route it took the largest; its own headers are what remains.
            let headers = own.checked_sub(LL_MAX_HEADER_BYTES).filter(|bytes| *bytes >= ip_bytes);
            let made_again = headers
                .zip(lower)
                .map(|(headers, (_, asked))| headers + ETHERNET_BYTES + u32::from(asked));
            Some(Need {
                bytes: own,
                source,
                made_again_bytes: made_again.filter(|bytes| *bytes < own),
            })
        }
        _ => None,
    }
}

fn headroom(view: &Evidence, notes: &mut Notes<'_>) {
    for tunnel in view.interfaces().filter(|link| is_tunnel(link)) {
        let Some(detail) = view.details.get(&tunnel.index) else { continue };
        if detail.headroom_bytes.is_none() {
            notes.unseen(
                "the kernel does not report the headroom of interfaces (Linux 6.15 does; earlier \
                 versions need BTF, CAP_BPF and CAP_PERFMON)",
            );
            continue;
        }
        let asked = |link: &Link| view.details.get(&link.index)?.headroom_bytes;
        let lower = view.below_tunnel(tunnel).and_then(|link| Some((link, asked(link)?)));
        let is_ipv6 = detail.tunnel_remote.is_some_and(|remote| remote.is_ipv6());
        let Some(need) = need(tunnel, detail.headroom_bytes, lower, is_ipv6) else { continue };
        counted(view, notes, tunnel, behind_bridge(view, tunnel, &need));
    }
}

/// Most copies of a hundred sent frames that are not worth a finding.
const COPIES_PER_CENT_MAX: u64 = 5;

/// Reports what was counted; a copy that was not counted is possible, and one that did not happen is none.
fn counted(view: &Evidence, notes: &mut Notes<'_>, tunnel: &Link, possible: Vec<Finding>) {
    let sent = view.observed_at(tunnel.index).map_or(0, |counts| counts.sent.count);
    let sees_functions = view.observed.as_ref().is_some_and(|observed| observed.sees_functions);
    if !sees_functions || sent < FRAMES_MIN {
        for found in possible {
            let what = format!("{}, unless they have more room than is known here", found.what);
            let severity = found.severity.min(Severity::Low);
            notes.find(Finding { what, severity, ..found }.seen(Confidence::Possible));
        }
        return;
    }
    let copies = view
        .observed_copies()
        .filter(|copies| copies.index == tunnel.index && copies.function == "pskb_expand_head");
    let copies: Vec<_> = copies.collect();
    let count: u64 = copies.iter().map(|copies| copies.count).sum();
    let shared: u64 = copies.iter().map(|copies| copies.shared_count).sum();
    if count * 100 <= sent * COPIES_PER_CENT_MAX {
        return;
    }
    let name = &tunnel.name;
    let cause = possible.into_iter().next().filter(|_| shared * 2 < count);
    let mut found = cause.unwrap_or_else(|| {
        let (change, undo) = if shared * 2 < count {
            (
                format!("recreate {name} with `dev IF`, or while the route to its far end exists"),
                format!("recreate {name} as it was"),
            )
        } else {
            (
                "remove what shares the frames: a third port of the bridge to which they are flooded, or a capture"
                    .to_owned(),
                "add it again".to_owned(),
            )
        };
        finding(Severity::Medium, "").because(COPIED).effect("saves a copy of each frame").change(change, undo)
    });
    let why =
        if shared * 2 < count { "for headroom" } else { "because other buffers share their data" };
    // The device copies, and the function that writes the outer header may copy again.
    let times = match count as f64 / sent as f64 {
        each if each > 1.2 => format!(", {each:.1} times each"),
        _ => String::new(),
    };
    let copied = count.min(sent);
    found.what = format!("{copied} of {sent} frames that {name} sends are copied {why}{times}");
    found.severity = Severity::Medium;
    for copies in copies {
        found = found.read(
            format!("calls of {} (observer)", copies.function),
            format!("{} by {}, {} bytes each", copies.count, copies.by(), copies.bytes_each()),
        );
    }
    notes.find(found.seen(Confidence::Now).costs(format!("{count} copies in the window")));
}

const COPIED: &str = "a frame without room for its outer headers is copied (gre_tap_xmit or vxlan_xmit calls \
                      skb_cow_head, and that pskb_expand_head)";

/// Frames that reach a tunnel by its bridge: those of local senders have the headroom that the bridge set for their
/// port, those of a card what its driver leaves.
fn behind_bridge(view: &Evidence, tunnel: &Link, need: &Need) -> Vec<Finding> {
    let mut possible = Vec::new();
    let headroom = |index: u32| view.details.get(&index).and_then(|detail| detail.headroom_bytes);
    let bridge = view.details.get(&tunnel.index).and_then(|detail| detail.master);
    let bridge = bridge.and_then(|index| view.links.get(&index));
    let Some(bridge) = bridge.filter(|bridge| bridge.kind.as_deref() == Some("bridge")) else {
        return possible;
    };
    let ports = view.details.values().filter(|port| port.master == Some(bridge.index));
    let ports: Vec<&Link> = ports.filter_map(|port| view.links.get(&port.index)).collect();
    if need.bytes > LEFT_BY_CARD_BYTES
        && let Some(card) = ports.iter().find(|port| port.kind.is_none() && port.mac.is_some())
    {
        possible.push(copied_from_card(tunnel, card, need));
    }
    // A bridge passes the headroom that its ports request to all ports once, when a port joins. GRE devices request
    // more later, when a frame meets a changed route. Source: br_add_if of net/bridge/br_if.c and
    // ip_tunnel_adj_headroom of net/ipv4/ip_tunnel.c. Only these kinds of ports obey it.
    let obedient = ports.iter().find(|port| matches!(port.kind.as_deref(), Some("veth" | "tun")));
    let Some((port, told)) = obedient.zip(headroom(bridge.index)) else { return possible };
    let left = left_by_sender(told);
    if left >= need.bytes {
        return possible;
    }
    let (name, bridge) = (&tunnel.name, &bridge.name);
    let command = |to: &str| format!("{}ip link set {name} {to}", view.prefix());
    let joins_again = headroom(tunnel.index).is_some_and(|own| own > told);
    let (change, undo, risk) = if joins_again {
        (
            format!("{} && {}", command("nomaster"), command(&format!("master {bridge}"))),
            "none: it is the same tunnel in the same bridge".to_owned(),
            "the bridge briefly stops using the tunnel",
        )
    } else {
        (
            format!("recreate {name} with `dev IF`"),
            format!("recreate {name} without `dev`"),
            "the tunnel is deleted with its interface, and no longer follows the route",
        )
    };
    possible.push(
        finding(
            Severity::Medium,
            format!("frames that bridge {bridge} passes to {name} are copied"),
        )
        .read(need.source.clone(), format!("{} bytes", need.bytes))
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
        .risk(risk)
        .change(change, undo),
    );
    possible
}

/// Frames that a card received, which the tunnel asks more room for than the driver leaves.
fn copied_from_card(tunnel: &Link, card: &Link, need: &Need) -> Finding {
    let (name, card) = (&tunnel.name, &card.name);
    let helps = need.made_again_bytes.filter(|bytes| *bytes <= LEFT_BY_CARD_BYTES);
    let found = finding(
        if helps.is_some() { Severity::Medium } else { Severity::Low },
        format!("frames that {card} receives are copied for tunnel {name}"),
    )
    .read(need.source.clone(), format!("{} bytes", need.bytes))
    .read(
        format!("headroom of a frame from {card}"),
        format!("{LEFT_BY_CARD_BYTES} bytes (NET_SKB_PAD), if its driver leaves no more for XDP"),
    )
    .because(
        "a frame without room for what the tunnel asks for is copied (gre_tap_xmit or vxlan_xmit calls \
         skb_cow_head, and that pskb_expand_head), although its outer headers would fit",
    )
    .effect("saves a copy of each frame");
    match helps {
        Some(bytes) => found.risk("the tunnel has to be recreated").change(
            format!("recreate {name} while the route to its far end exists, or with `dev IF`: it then asks for {bytes} bytes"),
            format!("recreate {name} before its route exists"),
        ),
        None => found.risk("none: nothing is changed").change(
            format!("none on {name}: the interface below asks for that much; a card whose driver leaves 192 bytes or more for XDP avoids the copy"),
            "none: nothing is changed",
        ),
    }
}

/// Outer IPv4, UDP and VXLAN headers and the inner Ethernet header; the MTU excludes the outer one.
const VXLAN_BYTES: u32 = 20 + 8 + 8 + 14;

pub(super) const MTU: Cause = Cause {
    title: "frames of a tunnel do not fit the interface below",
    symptom: "large transfers through the tunnel are slow or hang, small ones work",
    evidence: "MTU of the tunnel and its outer headers against the MTU of the interface below; fragments that this host \
               makes (IpFragCreates) and refuses to make (IpFragFails)",
    remedy: "`ip link set TUNNEL mtu N`, with N the lower MTU without 50 bytes for VXLAN",
    undo: "`ip link set TUNNEL mtu` with the old number",
    counters: &["IpFragCreates", "IpFragFails"],
    references: &["RFC 7348 section 4.3", "moby/moby#24906", "openvswitch/ovs-issues#9"],
    is_of_forwarding: true,
    ..Cause::new("tunnel-mtu", mtu)
};

fn mtu(view: &Evidence, notes: &mut Notes<'_>) {
    // Without traffic it is a setting, and may not matter.
    let cut =
        view.window().map(|window| window.sum(&["IpFragCreates", "IpFragFails", "Ip6FragCreates"]));
    let severity = cut.map_or(Severity::Low, Losses::severity);
    for link in view.interfaces() {
        let bound = view.details.get(&link.index).and_then(|detail| detail.vxlan_bound_to);
        let Some(below) = bound.and_then(|index| view.links.get(&index)) else { continue };
        if link.mtu_bytes + VXLAN_BYTES <= below.mtu_bytes {
            continue;
        }
        let fits = below.mtu_bytes.saturating_sub(VXLAN_BYTES);
        let command = format!("{}ip link set {} mtu", view.prefix(), link.name);
        notes.find(
            finding(severity, format!("frames of {} do not fit {}", link.name, below.name))
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
        // Requests of a gretap over a card that wants none, and over a virtio one.
        assert_eq!(left_by_sender(38), 50);
        assert_eq!(left_by_sender(50), 66);
        assert_eq!(left_by_sender(0), 2);
    }

    #[test]
    fn a_gretap_made_without_its_route_asks_for_more_than_a_card_leaves() {
        let (tunnel, card) = (Link::of_kind("gt", Some("gretap")), Link::of_kind("vio", None));
        let bytes = |own, lower| need(&tunnel, Some(own), lower, false).unwrap();
        // Before the route; after it, over plain Ethernet and over virtio.
        let before = bytes(152, Some((&card, 12)));
        assert_eq!((before.bytes, before.made_again_bytes), (152, Some(50)));
        assert!(bytes(38, Some((&card, 0))).bytes <= LEFT_BY_CARD_BYTES);
        assert!(bytes(50, Some((&card, 12))).bytes <= LEFT_BY_CARD_BYTES);
        // A radio below: it asks for as much when it is made again.
        let radio = bytes(100, Some((&card, 62)));
        assert_eq!((radio.bytes, radio.made_again_bytes), (100, None));
        assert_eq!(copied_from_card(&tunnel, &card, &before).severity, Severity::Medium);
        assert_eq!(copied_from_card(&tunnel, &card, &radio).severity, Severity::Low);
    }

    #[test]
    fn vxlan_asks_for_what_the_interface_below_needs_whatever_it_is_bound_to() {
        let (tunnel, card) = (Link::of_kind("vx", Some("vxlan")), Link::of_kind("eth0", None));
        let bytes = |lower, is_ipv6| need(&tunnel, Some(50), lower, is_ipv6).map(|need| need.bytes);
        // Plain Ethernet needs none: nothing is copied there.
        assert_eq!(bytes(Some((&card, 0)), false), Some(52));
        assert_eq!(bytes(Some((&card, 12)), false), Some(68));
        assert_eq!(bytes(Some((&card, 0)), true), Some(72));
        assert_eq!(bytes(None, false), None);
    }
}
