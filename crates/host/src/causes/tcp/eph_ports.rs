//! Outgoing connections for which no local port is left.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use super::connections::programs;
use super::port_overlap::{is_listed, ranges};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "No local port is left for connections to one destination",
    symptom: "A proxy or client fails at peaks with error 99, `Cannot assign requested address` (EADDRNOTAVAIL), \
              and answers 502 or 504; the destination is idle.",
    evidence: "sock_diag: connections from one address to one address and port, TIME-WAIT included, against \
               net.ipv4.ip_local_port_range less ip_local_reserved_ports.",
    remedy: "Connections that are used again (keep-alive to the upstream); a wider range; net.ipv4.tcp_tw_reuse=1; \
             more addresses or ports of the destination.",
    undo: "The old range, net.ipv4.tcp_tw_reuse=2.",
    references: &[
        "connect(2), EADDRNOTAVAIL",
        "Documentation/networking/ip-sysctl.rst, ip_local_port_range",
        "openstreetmap/operations#335",
        "varnish/hitch#213",
    ],
    ..Cause::new("eph-ports", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let Some(&[low, high]) = evidence.numbers("net/ipv4/ip_local_port_range").as_deref() else {
        return notes.unseen("net.ipv4.ip_local_port_range");
    };
    let reserved = evidence.sysctl("net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let in_range = |port: u64| (low..=high).contains(&port);
    let reserved_count =
        ranges(&reserved).flat_map(|(from, to)| from..=to).filter(|port| in_range((*port).into()));
    let size = (high + 1).saturating_sub(low).saturating_sub(reserved_count.count() as u64);
    let reuse = evidence.number("net/ipv4/tcp_tw_reuse").unwrap_or(0);
    // A socket in TIME-WAIT does not hold its port if it may be used again after a second.
    let is_free = |one: &TcpSocket| {
        let is_reused = reuse == 1 || reuse == 2 && one.remote.ip().is_loopback();
        one.state == TcpState::Listen || one.state == TcpState::TimeWait && is_reused
    };
    let mut used: HashMap<(IpAddr, SocketAddr), BTreeMap<u16, &TcpSocket>> = HashMap::new();
    for one in window.after.tcp.iter().filter(|one| !is_free(one)) {
        let port = one.local.port();
        if in_range(port.into()) && !is_listed(&reserved, port) {
            used.entry((one.local.ip(), one.remote)).or_default().insert(port, one);
        }
    }
    let mut scarce: Vec<_> =
        used.iter().filter(|(_, ports)| ports.len() as u64 * 4 >= size.max(1) * 3).collect();
    scarce.sort_by_key(|(path, ports)| (std::cmp::Reverse(ports.len()), **path));
    for ((from, to), ports) in scarce.into_iter().take(8) {
        let left = size.saturating_sub(ports.len() as u64);
        let waiting = ports.values().filter(|one| one.state == TcpState::TimeWait).count();
        let sockets: Vec<&TcpSocket> = ports.values().copied().collect();
        let (severity, confidence, is_left) = match left {
            _ if left * 50 <= size => {
                (Severity::High, Confidence::Now, "connect fails with EADDRNOTAVAIL")
            }
            _ => (Severity::Low, Confidence::SetUp, "connect fails when all are"),
        };
        let program = programs(evidence, &sockets);
        let prefix = evidence.prefix();
        let wider = format!("{prefix}sysctl -w net.ipv4.ip_local_port_range='1024 65535'");
        let (change, undo) = if waiting * 2 > ports.len() {
            (
                format!(
                    "connections of the program that are used again (keep-alive to the upstream), or {prefix}sysctl -w \
                     net.ipv4.tcp_tw_reuse=1, or {wider}"
                ),
                format!(
                    "{prefix}sysctl -w net.ipv4.tcp_tw_reuse={reuse} net.ipv4.ip_local_port_range='{low} {high}'"
                ),
            )
        } else {
            (
                format!("close idle connections, or more addresses of the destination, or {wider}"),
                format!("{prefix}sysctl -w net.ipv4.ip_local_port_range='{low} {high}'"),
            )
        };
        let found = finding(
                severity,
                format!(
                    "{} of {size} local ports are in use from {from} to {to} ({program}, {waiting} in TIME-WAIT): {is_left}",
                    ports.len()
                ),
            )
            .seen(confidence)
            .read("/proc/sys/net/ipv4/ip_local_port_range", format!("{low} {high}"))
            .read("/proc/sys/net/ipv4/ip_local_reserved_ports", if reserved.is_empty() { "none" } else { &reserved })
            .read("/proc/sys/net/ipv4/tcp_tw_reuse", reuse.to_string())
            .read(format!("sock_diag: connections to {to}"), format!("{}, {waiting} in TIME-WAIT", ports.len()))
            .because(
                "each connection to the same address and port needs a local port of its own, and keeps it for 60 s \
                 after its end on the side that closed first (connect(2), ip-sysctl.rst)",
            )
            .effect("connections are made again")
            .risk("a range that begins at 1024 covers ports of services: reserve those (ip_local_reserved_ports)")
            .change(change, undo);
        let is_waiting = waiting * 2 > ports.len();
        let found =
            if is_waiting { found.setting("tcp-tw-reuse", &Target::Netns, "1") } else { found };
        notes.find(found.setting("ip-local-port-range", &Target::Netns, "1024 65535"));
    }
}
