//! A router or host of the own network does not answer.

use std::net::IpAddr;

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{Neighbour, NeighbourState, TableRoute, TcpState};

use super::bad_v6;

/// Most neighbours that are named.
const NAMED_MAX: usize = 3;

pub(super) const CAUSE: Cause = Cause {
    title: "The next hop does not answer: a router, or a host of the own network",
    symptom: "\"No route to host\" or \"Destination Host Unreachable\" 3 s after each try, although there is a route and the link \
              is up",
    evidence: "the neighbour of a route's gateway, or one that a program connects to, is INCOMPLETE or FAILED in `ip neigh`; \
               unresolved_discards of /proc/net/stat/arp_cache",
    remedy: "the right gateway, VLAN or prefix; the host that should answer",
    undo: "the previous route",
    counters: &["arp_cache unresolved_discards", "arp_cache res_failed", "ndisc_cache res_failed"],
    reasons: &["NEIGH_FAILED", "NEIGH_QUEUEFULL"],
    references: &[
        "https://man7.org/linux/man-pages/man7/arp.7.html",
        "https://man7.org/linux/man-pages/man8/ip-neighbour.8.html",
    ],
    is_of_forwarding: true,
    ..Cause::new("no-neighbour", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let silent: Vec<&Neighbour> =
        window.after.neighbours.iter().filter(|one| one.is_silent()).collect();
    if silent.is_empty() {
        return;
    }
    let Some(routes) = notes.section(evidence.routes()) else { return };
    // The worst first: routers before hosts.
    let gateway = |one: &Neighbour| {
        let by = routes.iter().filter(|route| route.gateway == Some(one.ip));
        by.min_by_key(|route| (route.destination.is_some(), route.metric))
    };
    let mut named: Vec<(&Neighbour, Option<&TableRoute>)> =
        silent.iter().map(|one| (*one, gateway(one))).collect();
    named.sort_by_key(|(one, route)| (route.is_none(), one.ip));
    // A family that is tried in vain has a finding of its own.
    named.retain(|(_, route)| {
        !route.is_some_and(|route| route.is_default() && bad_v6::has_other(evidence, route.is_ipv6))
    });
    let mut left = NAMED_MAX;
    for (one, route) in named {
        let is_now =
            one.state == NeighbourState::Incomplete
                || window.before.neighbours.iter().any(|before| {
                    before.ip == one.ip && before.state == NeighbourState::Incomplete
                });
        let program = program(evidence, one.ip);
        let severity = match (route, is_now) {
            (Some(_), true) => Severity::High,
            (Some(route), false) if is_preferred(routes, route) => Severity::Medium,
            (Some(_), false) => Severity::Low,
            (None, _) if program.is_some() => Severity::Medium,
            // It was asked for at some time, as a scan does.
            (None, _) => continue,
        };
        if left == 0 {
            return;
        }
        left -= 1;
        let name = evidence.name_of(one.interface);
        let hop = match route {
            Some(route) => format!(
                "the router {} on {name} does not answer: packets {} are lost",
                one.ip,
                purpose(route)
            ),
            None => format!("{} on {name} does not answer", one.ip),
        };
        let what = match &program {
            Some(program) => format!("{hop}; {program} waits for it"),
            None => hop,
        };
        let lost =
            window.sum(&["arp_cache unresolved_discards", "ndisc_cache unresolved_discards"]);
        let prefix = evidence.prefix();
        notes.find(
            finding(severity, what)
                .seen(if is_now { Confidence::Now } else { Confidence::Before })
                .costs("every packet by that next hop")
                .read(format!("RTM_GETNEIGH of {}", one.ip), format!("{:?}", one.state).to_uppercase())
                .read("/proc/net/stat: unresolved_discards, of all namespaces", lost.evidence())
                .because(
                    "packets wait until the next hop tells its MAC address; after three questions in three seconds, they are dropped \
                     and programs get EHOSTUNREACH (arp(7))",
                )
                .effect("packets find their next hop")
                .change(
                    format!(
                        "look for the host, its VLAN and its prefix (arping -I {name} {}), or correct the route: {prefix}ip route \
                         replace DESTINATION via ROUTER dev {name}",
                        one.ip
                    ),
                    format!("{prefix}ip route replace with the words that `ip route` showed before"),
                ),
        );
    }
}

fn purpose(route: &TableRoute) -> String {
    match route.destination {
        None => "by the default route".to_owned(),
        Some((ip, prefix)) => format!("to {ip}/{prefix}"),
    }
}

/// The route is the best one to its destination.
fn is_preferred(routes: &[TableRoute], route: &TableRoute) -> bool {
    let is_rival = |one: &&TableRoute| {
        one.destination == route.destination
            && one.is_ipv6 == route.is_ipv6
            && one.table == route.table
    };
    routes.iter().filter(is_rival).all(|one| one.metric >= route.metric)
}

/// A program that connects to an address.
fn program(evidence: &Evidence, ip: IpAddr) -> Option<String> {
    let window = evidence.window().ok()?;
    let samples = [&window.after, &window.before];
    let mut sockets = samples.iter().flat_map(|sample| &sample.tcp);
    let one = sockets.find(|one| one.state == TcpState::SynSent && one.remote.ip() == ip)?;
    Some(format!("{} to port {}", evidence.owner(one.inode), one.remote.port()))
}
