//! Members of a group that its datagrams do not reach: sockets bound elsewhere, groups joined elsewhere.

use super::{NAMED_MAX, named};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Membership, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{Link, UdpSocket};

pub(super) const CAUSE: Cause = Cause {
    title: "multicast arrives and no socket is bound to take it",
    symptom: "a program has joined a group and gets nothing, while a capture shows the datagrams",
    evidence: "UdpIgnoredMulti grows with IpExtInMcastPkts; groups of /proc/net/igmp; addresses, ports and interfaces \
               that sockets are bound to (sock_diag)",
    remedy: "bind the socket to the group's address, or to any, and to the group's port; not to the interface's address",
    undo: "the previous address",
    counters: &["UdpIgnoredMulti", "Udp6IgnoredMulti"],
    references: &["ip(7), IP_ADD_MEMBERSHIP", "net/ipv4/udp.c, __udp_is_mcast_sock"],
    ..Cause::new("group-bind", check)
};

pub(super) const OTHER_INTERFACE: Cause = Cause {
    title: "a group is joined on another interface than the one that receives it",
    symptom: "a program has joined a group and gets nothing; a capture on the other interface shows the datagrams",
    evidence: "groups of /proc/net/igmp by interface; packets received by each; packets that were delivered nowhere \
               (IpInReceives without IpInDelivers and the counted drops)",
    remedy: "join with the address or index of the interface that receives it (IP_ADD_MEMBERSHIP, struct ip_mreqn), or \
             add a route to the group: `ip route add 239.0.0.0/8 dev IF`",
    undo: "`ip route del 239.0.0.0/8 dev IF`",
    counters: &["IpInReceives", "IpInDelivers"],
    references: &["ip(7), IP_ADD_MEMBERSHIP", "dotnet/corefx#27613"],
    ..Cause::new("group-interface", other_interface)
};

/// Ports of discovery, whose sockets serve groups of their own.
const OF_DISCOVERY: [u16; 8] = [67, 68, 546, 547, 1900, 3702, 5353, 5355];

/// Groups that programs joined for data.
fn joined(view: &Evidence) -> impl Iterator<Item = &Membership> {
    view.groups().iter().filter(|one| one.is_of_data() && one.user_count > 0)
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let ignored = window.sum(&["UdpIgnoredMulti", "Udp6IgnoredMulti"]);
    let arrived = window.sum(&["IpExtInMcastPkts", "Ip6InMcastPkts"]);
    if ignored.now == 0 || arrived.now == 0 {
        return;
    }
    let mut groups = joined(view).peekable();
    let Some(first) = groups.peek().copied() else { return };
    let sockets: Vec<&UdpSocket> =
        window.after.udp.iter().filter(|one| !OF_DISCOVERY.contains(&one.local.port())).collect();
    let may_take = |one: &UdpSocket, group: &Membership| {
        let is_any = one.local.ip().is_unspecified() || one.local.ip() == group.group;
        let is_there = one.bound_ifindex == 0
            || view.links.get(&one.bound_ifindex).is_some_and(|link| link.name == group.interface);
        is_any && is_there
    };
    let is_taken = groups.any(|group| sockets.iter().any(|one| may_take(one, group)));
    let what = ignored.sentence("multicast or broadcast datagrams arrived that no socket takes");
    let elsewhere = sockets.iter().filter(|one| {
        let ip = one.local.ip();
        one.bound_ifindex != 0 || !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
    });
    let elsewhere: Vec<&&UdpSocket> = elsewhere.take(NAMED_MAX).collect();
    // A host has broadcasts that it does not want; without any socket that could take the group it is certain.
    let mut found = match elsewhere.first() {
        _ if is_taken && ignored.now < 10 => return,
        Some(one) if !is_taken => finding(
            ignored.severity(),
            format!(
                "{what}: group {} is joined on {}, and {} is bound to {}, which gets none of it",
                first.group,
                first.interface,
                named(view, one),
                place(view, one)
            ),
        )
        .counted(ignored, "datagrams"),
        _ => finding(
            Severity::Low,
            format!(
                "{what}: group {} is joined on {}; check the port that programs are bound to",
                first.group, first.interface
            ),
        )
        .costs(format!("{:.0} datagrams a second", ignored.per_second()))
        .seen(Confidence::Possible),
    };
    for one in elsewhere {
        found = found.read(
            format!("sock_diag: {}", named(view, one)),
            format!("bound to {}", place(view, one)),
        );
    }
    notes.find(
        found
            .read("/proc/net/snmp and snmp6: IgnoredMulti", ignored.evidence())
            .read("/proc/net/netstat and snmp6: InMcastPkts", arrived.evidence())
            .read("/proc/net/igmp and igmp6", format!("{} on {}", first.group, first.interface))
            .because(
                "a datagram of a group goes to sockets that are bound to the group's address or to any, to its port, \
                 and to its interface or none (ip(7); net/ipv4/udp.c, __udp_is_mcast_sock)",
            )
            .effect("the program gets the group")
            .risk("a socket that is bound to any address gets unicast and other groups too")
            .change(
                format!("bind the program to {} or to any address, and to the port of the group", first.group),
                "the program's previous address",
            ),
    );
}

/// Address and interface that a socket is bound to.
fn place(view: &Evidence, socket: &UdpSocket) -> String {
    match view.links.get(&socket.bound_ifindex) {
        Some(link) => format!("{} on {}", socket.local, link.name),
        None => socket.local.to_string(),
    }
}

/// IPv4 packets that were neither delivered nor forwarded, and that no counter explains.
fn vanished(window: &Window) -> Losses {
    const EXPLAINED: [&str; 9] = [
        "IpInDelivers",
        "IpForwDatagrams",
        "IpInHdrErrors",
        "IpInAddrErrors",
        "IpInUnknownProtos",
        "IpInDiscards",
        "IpReasmReqds",
        "IpExtInTruncatedPkts",
        "TcpExtIPReversePathFilter",
    ];
    window.sum(&["IpInReceives", "IpReasmOKs"]).without(window.sum(&EXPLAINED))
}

fn other_interface(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    const STREAM: u64 = 10;
    let lost = vanished(window);
    if lost.now < STREAM || window.sum(&["IpExtInMcastPkts"]).now > 0 {
        return;
    }
    let received = |name: &str, counter: &str| window.link(name, counter);
    for group in joined(view).filter(|one| one.group.is_ipv4()) {
        if received(&group.interface, "rx_packets").now >= STREAM / 2 {
            continue;
        }
        let is_member = |link: &Link| {
            joined(view).any(|one| one.group == group.group && one.interface == link.name)
        };
        // A card counts multicast frames, a veth pair does not.
        let receives = |link: &&Link| {
            let counter =
                if link.kind.as_deref() == Some("veth") { "rx_packets" } else { "multicast" };
            !link.is_loopback && link.is_up && received(&link.name, counter).now >= STREAM
        };
        let Some(other) = view.links.values().filter(receives).find(|link| !is_member(link)) else {
            continue;
        };
        let (name, group) = (&other.name, group.clone());
        let is_certain = other.kind.as_deref() != Some("veth");
        let severity = if is_certain { Severity::Medium } else { Severity::Low };
        notes.find(
            finding(
                severity,
                format!(
                    "group {} is joined on {}, which receives nothing, while {} packets arrived on {name} within a \
                     second and reached no program",
                    group.group, group.interface, lost.now
                ),
            )
            .seen(Confidence::Possible)
            .costs(format!("{:.0} packets a second", lost.per_second()))
            .read("/proc/net/igmp", format!("{} on {}", group.group, group.interface))
            .read(format!("rx_packets of {}", group.interface), received(&group.interface, "rx_packets").evidence())
            .read(format!("rx_packets of {name}"), received(name, "rx_packets").evidence())
            .read("/proc/net/snmp: Ip InReceives without InDelivers and counted drops", lost.evidence())
            .because(
                "a group is joined on one interface: the one that the program names, else that of the route to the \
                 group; datagrams that arrive on another one are dropped without a counter (ip(7), IP_ADD_MEMBERSHIP)",
            )
            .effect("the program gets the group")
            .risk("a firewall rule may drop them too: `wirepath explain` names it")
            .change(
                format!("join {} on {name} in the program; or {}ip route add {} dev {name}", group.group, view.prefix(), group.group),
                format!("{}ip route del {} dev {name}", view.prefix(), group.group),
            ),
        );
        return;
    }
}
