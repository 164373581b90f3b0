//! Packets to which no route applies, or one that drops them.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::TableRoute;

/// Packets within the window from which it is more than a try now and then.
const PACKETS: u64 = 3;
/// Metric of the route of IPv6 that the kernel has when there is no other.
const NONE_METRIC: u32 = u32::MAX;

pub(super) const NO_ROUTE: Cause = Cause {
    title: "There is no route to where packets go",
    symptom: "programs get \"Network is unreachable\" (ENETUNREACH) at once; or a router answers \"Destination Net Unreachable\"",
    evidence: "IpOutNoRoutes (programs) or IpExtInNoRoutes (forwarded packets) grows; no default route in `ip route`",
    remedy: "ip route add, with the router of that destination; or correct the rule that selects an empty table",
    undo: "ip route del with the same words",
    counters: &["IpOutNoRoutes", "Ip6OutNoRoutes", "IpExtInNoRoutes"],
    reasons: &["IP_INNOROUTES", "IP_OUTNOROUTES"],
    references: &["https://man7.org/linux/man-pages/man8/ip-route.8.html"],
    is_of_forwarding: true,
    ..Cause::new("no-route", no_route)
};

fn no_route(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let [received, sent, sent_v6] =
        ["IpExtInNoRoutes", "IpOutNoRoutes", "Ip6OutNoRoutes"].map(|name| window.sum(&[name]));
    if received.now + sent.now + sent_v6.now == 0 {
        return;
    }
    let Some(routes) = notes.section(evidence.routes()) else { return };
    let has_default =
        |is_ipv6| routes.iter().any(|route| route.is_default() && route.is_ipv6 == is_ipv6);
    let sentences = [
        (received, "packets to be forwarded had no route", "IpExt InNoRoutes", false),
        (
            sent,
            "sends of programs had no route and failed with ENETUNREACH",
            "Ip OutNoRoutes",
            false,
        ),
        (
            sent_v6,
            "sends of programs by IPv6 had no route and failed with ENETUNREACH",
            "Ip6OutNoRoutes",
            true,
        ),
    ];
    for (lost, what, counter, is_ipv6) in sentences {
        if lost.now == 0 {
            continue;
        }
        if is_ipv6 && !has_default(true) && has_default(false) {
            // A host without IPv6: programs try it and take IPv4 at once.
            notes.fact(lost.sentence(
                "tries of programs by IPv6, which has no default route here, failed at once",
            ));
            continue;
        }
        let severity = if lost.now >= PACKETS { Severity::High } else { Severity::Medium };
        let (version, prefix) = (if is_ipv6 { "IPv6" } else { "IPv4" }, evidence.prefix());
        let ip = if is_ipv6 { "ip -6" } else { "ip" };
        let default = if has_default(is_ipv6) {
            "there is a default route"
        } else {
            "there is no default route"
        };
        let counted =
            finding(severity, format!("{} ({default} of {version})", lost.sentence(what)))
                .counted(lost, "packets");
        notes.find(
            counted
                .read(format!("/proc/net/snmp, netstat or snmp6: {counter}"), lost.evidence())
                .read(format!("RTM_GETROUTE: default routes of {version}"), default)
                .because("a packet without a route is dropped, and its sender is told (ip-route(8))")
                .effect("the packets leave")
                .risk("a default route to a router that does not forward only moves the fault")
                .change(
                    format!("{prefix}{ip} route add DESTINATION via ROUTER; `{prefix}{ip} route get DESTINATION` checks it"),
                    format!("{prefix}{ip} route del DESTINATION via ROUTER"),
                ),
        );
    }
}

pub(super) const DEAD_ROUTE: Cause = Cause {
    title: "Packets meet a route that drops them: blackhole, unreachable or prohibit",
    symptom: "one network is unreachable behind this router, or programs get EINVAL, EHOSTUNREACH or EACCES from connect, although \
              the default route works",
    evidence: "routes of these kinds in `ip route show table all`, while received packets are neither delivered, forwarded nor \
               counted as dropped",
    remedy: "delete the route, or add the more specific one that is missing",
    undo: "ip route add with the same words",
    counters: &["IcmpOutDestUnreachs"],
    reasons: &["IP_INNOROUTES"],
    references: &["https://man7.org/linux/man-pages/man8/ip-route.8.html"],
    is_of_forwarding: true,
    ..Cause::new("dead-route", dead_route)
};

fn dead_route(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let vanished = window.vanished_received();
    let no_route = window.sum(&["rt_cache in_no_route"]);
    if vanished.now == 0 || no_route.now == 0 {
        return;
    }
    let Some(routes) = notes.section(evidence.routes()) else { return };
    let dead: Vec<&TableRoute> = routes
        .iter()
        .filter(|route| kind(route).is_some() && route.metric != NONE_METRIC)
        .collect();
    let Some(first) = dead.first() else { return };
    let lost = Losses { now: vanished.now.min(no_route.now), ..vanished };
    let words = words(first);
    let more = if dead.len() > 1 {
        format!(" or one of {} others", dead.len() - 1)
    } else {
        String::new()
    };
    let ip = if first.is_ipv6 { "ip -6" } else { "ip" };
    let what = format!(
        "{}: `{words}`{more} drops them",
        lost.sentence("received packets met a route that drops")
    );
    let mut found = finding(lost.severity(), what).counted(lost, "packets");
    for route in dead.iter().take(5) {
        found = found.read("RTM_GETROUTE", self::words(route));
    }
    let prefix = evidence.prefix();
    notes.find(
        found
            .read("/proc/net/snmp: Ip InReceives that no counter accounts for", vanished.evidence())
            .read("/proc/net/stat/rt_cache: in_no_route", no_route.evidence())
            .read("/proc/net/snmp: Icmp OutDestUnreachs", window.sum(&["IcmpOutDestUnreachs"]).evidence())
            .because(
                "blackhole drops in silence, unreachable and prohibit answer with ICMP; all keep loops out of a network whose more \
                 specific routes are missing (ip-route(8))",
            )
            .effect("the packets take the next best route")
            .risk("the route may keep packets for absent hosts from looping between two routers")
            .change(format!("{prefix}{ip} route del {words}"), format!("{prefix}{ip} route add {words}")),
    );
}

fn kind(route: &TableRoute) -> Option<&'static str> {
    match route.kind {
        libc::RTN_BLACKHOLE => Some("blackhole"),
        libc::RTN_UNREACHABLE => Some("unreachable"),
        libc::RTN_PROHIBIT => Some("prohibit"),
        _ => None,
    }
}

fn words(route: &TableRoute) -> String {
    let to =
        route.destination.map_or("default".to_owned(), |(ip, prefix)| format!("{ip}/{prefix}"));
    let table = if route.table == libc::RT_TABLE_MAIN as u32 {
        String::new()
    } else {
        format!(" table {}", route.table)
    };
    format!("{} {to}{table}", kind(route).unwrap_or_default())
}

pub(super) const NOT_ROUTER: Cause = Cause {
    title: "Packets for other hosts come to this host, which does not forward",
    symptom: "containers, virtual machines or hosts behind this one reach it and nothing beyond; or an address that moved away is still \
              sent here",
    evidence: "IpInAddrErrors grows and net.ipv4.ip_forward, or forwarding of the interface, is 0",
    remedy: "net.ipv4.ip_forward=1 if it is to be a router; else the route, or the neighbour entry, of those who send here",
    undo: "net.ipv4.ip_forward=0",
    counters: &["IpInAddrErrors"],
    reasons: &["IP_INADDRERRORS"],
    references: &["https://docs.kernel.org/networking/ip-sysctl.html"],
    is_of_forwarding: true,
    ..Cause::new("not-router", not_router)
};

fn not_router(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let dropped = window.sum(&["IpInAddrErrors"]);
    if dropped.now == 0 {
        return;
    }
    let off: Vec<&str> = evidence
        .links
        .values()
        .filter(|link| !link.is_loopback && link.is_up)
        .filter(|link| {
            evidence.number(&format!("net/ipv4/conf/{}/forwarding", link.name)) == Some(0)
        })
        .map(|link| link.name.as_str())
        .collect();
    if off.is_empty() {
        return;
    }
    let severity = if dropped.now >= PACKETS { Severity::High } else { Severity::Low };
    let what = dropped.sentence("packets for addresses of other hosts came to this host and were dropped: it does not forward them");
    let counted = finding(severity, format!("{what} (forwarding is off on {})", off.join(", ")))
        .counted(dropped, "packets");
    let sysctl = format!("{}sysctl -w net.ipv4.ip_forward", evidence.prefix());
    notes.find(
        counted
            .read("/proc/net/snmp: Ip InAddrErrors", dropped.evidence())
            .read("/proc/sys/net/ipv4/conf/*/forwarding: 0 of", off.join(" "))
            .because(
                "a frame to this host's MAC address with another host's IP address is dropped unless this host is a router \
                 (Documentation/networking/ip-sysctl.rst, ip_forward)",
            )
            .effect("the packets are forwarded by the routes of this host")
            .risk("it becomes a router for all its networks: filter in the forward chain; if an address moved away, forwarding hides it")
            .change(
                format!("{sysctl}=1; or, if it is to be no router, correct the route or neighbour entry of the senders (tcpdump -e shows them)"),
                format!("{sysctl}=0"),
            ),
    );
}

pub(super) const LOOP: Cause = Cause {
    title: "Packets run out of hops: a routing loop",
    symptom: "\"Time to live exceeded\"; a destination is unreachable and the link between two routers is busy with few packets",
    evidence: "IpInHdrErrors and IcmpOutTimeExcds grow together on a router; IcmpInTimeExcds on the host that sends",
    remedy: "on one of the two routers, the route to that destination; a blackhole route for a network whose hosts are absent",
    undo: "the previous route",
    counters: &["IcmpOutTimeExcds", "Icmp6OutTimeExcds", "IcmpInTimeExcds"],
    reasons: &["IP_INHDR"],
    references: &[
        "https://www.rfc-editor.org/rfc/rfc1812",
        "https://man7.org/linux/man-pages/man8/ip-route.8.html",
    ],
    is_of_forwarding: true,
    ..Cause::new("routing-loop", routing_loop)
};

/// A trace of the route has some tens of packets.
const LOOPED: u64 = 10;

fn routing_loop(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let answered = window.sum(&["IcmpOutTimeExcds", "Icmp6OutTimeExcds"]);
    let expired = window
        .sum(&["IpInHdrErrors", "Ip6InHdrErrors"])
        .without(window.sum(&["IpExtInCsumErrors"]));
    let own = window.sum(&["IcmpInTimeExcds", "Icmp6InTimeExcds"]);
    // Answers are limited to one a second for each host.
    let is_router = answered.total > 0 && expired.now >= LOOPED;
    if !is_router && own.now < LOOPED {
        return;
    }
    let (lost, severity, what) = if is_router {
        let what = expired.sentence(
            "forwarded packets had used up their hops: a loop between this router and another",
        );
        (expired, Severity::High, what)
    } else {
        let what = own.sentence("packets of this host used up their hops on the way: a loop between two routers, or a trace of the route");
        (own, Severity::Low, what)
    };
    let counted = finding(severity, what).counted(lost, "packets").seen(Confidence::Now);
    let prefix = evidence.prefix();
    notes.find(
        counted
            .read("/proc/net/snmp and snmp6: InHdrErrors without those of checksums", expired.evidence())
            .read("/proc/net/snmp and snmp6: Icmp OutTimeExcds", answered.evidence())
            .read("/proc/net/snmp and snmp6: Icmp InTimeExcds", own.evidence())
            .because(
                "each router takes one from a packet's hops and drops it at 0; in a loop, one packet crosses the link up to 255 times \
                 (RFC 1812, section 5.3.1)",
            )
            .effect("the packets reach their host, or end at once")
            .change(
                format!(
                    "find the destination (`traceroute`, `tcpdump icmp`) and correct its route: {prefix}ip route replace DESTINATION via \
                     ROUTER, or {prefix}ip route add blackhole NETWORK for absent hosts"
                ),
                format!("{prefix}ip route replace, or del, with the words that `ip route` showed before"),
            ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_route_is_written_as_ip_takes_it() {
        let route = |kind, table| TableRoute {
            table,
            destination: Some(("10.9.0.0".parse().unwrap(), 16)),
            is_ipv6: false,
            kind,
            interface: None,
            gateway: None,
            metric: 0,
        };
        assert_eq!(words(&route(6, 254)), "blackhole 10.9.0.0/16");
        assert_eq!(words(&route(8, 100)), "prohibit 10.9.0.0/16 table 100");
        assert_eq!(kind(&route(1, 254)), None);
    }
}
