//! Outgoing connections that take the port of a service.

use std::collections::{BTreeMap, BTreeSet};

use super::connections::name;
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "The range of ports for outgoing connections contains ports of services, and they are not reserved",
    symptom: "A service does not start after a restart, at random: `Address already in use`, and no server is seen \
              on its port. Or a node port is not reachable from one host.",
    evidence: "net.ipv4.ip_local_port_range covers the port and net.ipv4.ip_local_reserved_ports does not; `ss -tan \
               sport = :PORT` shows an outgoing connection (TIME-WAIT too).",
    remedy: "net.ipv4.ip_local_reserved_ports with the services' ports, or a range above them (32768 60999).",
    undo: "The old list or range.",
    references: &[
        "Documentation/networking/ip-sysctl.rst, ip_local_reserved_ports",
        "rancher/rancher#12510",
        "awslabs/amazon-eks-ami#1307",
        "kubernetes/kubernetes#111682",
    ],
    ..Cause::new("port-overlap", check)
};

/// First port of the kernel's default range.
const DEFAULT_LOW: u64 = 32_768;

/// Ports below the default range on which common services listen.
///
/// Source: the services' documentation.
const SERVICES: [u16; 60] = [
    1433, 1521, 1883, 2049, 2181, 2375, 2376, 2379, 2380, 3000, 3128, 3260, 3306, 3389, 4222, 4369,
    5000, 5044, 5432, 5601, 5672, 5900, 5984, 6379, 6443, 6444, 6514, 7000, 7001, 8000, 8008, 8080,
    8081, 8086, 8088, 8300, 8301, 8443, 8472, 8500, 8600, 8888, 9000, 9042, 9090, 9092, 9093, 9098,
    9099, 9100, 9200, 9300, 10248, 10249, 10250, 10254, 10256, 11211, 15672, 27017,
];

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(&[low, high]) = evidence.numbers("net/ipv4/ip_local_port_range").as_deref() else {
        return;
    };
    if low >= DEFAULT_LOW {
        // A listener there may have been given its port by the kernel.
        return;
    }
    let Some(window) = notes.window(evidence) else { return };
    let file = "net/ipv4/ip_local_reserved_ports";
    let reserved = evidence.sysctl(file).unwrap_or_default();
    let is_free = |port: u16| {
        (low..=high).contains(&port.into())
            && u64::from(port) < DEFAULT_LOW
            && !is_listed(&reserved, port)
    };
    let sockets = &window.after.tcp;
    let listeners: BTreeMap<u16, &TcpSocket> = sockets
        .iter()
        .filter(|one| one.state == TcpState::Listen)
        .map(|one| (one.local.port(), one))
        .collect();
    let mut taken: Vec<&TcpSocket> = sockets
        .iter()
        .filter(|one| is_free(one.local.port()) && !listeners.contains_key(&one.local.port()))
        .collect();
    taken.sort_by_key(|one| (!SERVICES.contains(&one.local.port()), one.local.port()));
    let exposed: Vec<&TcpSocket> =
        listeners.values().filter(|one| is_free(one.local.port())).copied().collect();
    let what = match (taken.first(), exposed.first()) {
        (Some(one), _) => format!(
            "an outgoing connection has TCP port {}: a service that starts there fails with `Address already in use` \
             ({})",
            one.local.port(),
            name(evidence, one)
        ),
        (None, Some(one)) => format!(
            "outgoing connections may take TCP port {} of {} while it restarts: they use {low} to {high}",
            one.local.port(),
            evidence.owner(one.inode)
        ),
        (None, None) => return,
    };
    let confidence = if taken.is_empty() { Confidence::SetUp } else { Confidence::Now };
    let mut found = finding(Severity::Low, what)
        .seen(confidence)
        .read("/proc/sys/net/ipv4/ip_local_port_range", format!("{low} {high}"))
        .read(format!("/proc/sys/{file}"), if reserved.is_empty() { "none" } else { &reserved });
    for one in taken.iter().take(8) {
        found =
            found.read(format!("sock_diag: TCP port {}", one.local.port()), name(evidence, one));
    }
    for one in exposed.iter().take(8) {
        let source = format!("sock_diag: listener of TCP port {}", one.local.port());
        found = found.read(source, evidence.owner(one.inode));
    }
    let known = taken.iter().filter(|one| SERVICES.contains(&one.local.port()));
    let ports: BTreeSet<u16> = known.chain(&exposed).map(|one| one.local.port()).collect();
    let mut list: Vec<String> = ports.iter().map(u16::to_string).collect();
    if ports.is_empty() {
        list.push("PORTS".to_owned());
    }
    list.extend((!reserved.is_empty()).then(|| reserved.clone()));
    let set = |value: &str| {
        format!("{}sysctl -w net.ipv4.ip_local_reserved_ports={value}", evidence.prefix())
    };
    notes.find(
        found
            .because(
                "the kernel gives outgoing connections any port of the range that is not bound at that moment, and \
                 bind(2) fails while one has it, in TIME-WAIT for a minute more (ip-sysctl.rst, \
                 ip_local_port_range)",
            )
            .effect("the ports stay free for their services; a connection that has one keeps it until it ends")
            .risk("as many ports fewer for outgoing connections")
            .change(format!(
                    "{}, or the kernel's usual range: {}sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
                    set(&list.join(",")),
                    evidence.prefix()
                ), format!("{} net.ipv4.ip_local_port_range='{low} {high}'", set(&format!("'{reserved}'")))),
    );
}

/// - `list`: ports and ranges, such as `8080,9000-9010`.
pub(super) fn is_listed(list: &str, port: u16) -> bool {
    ranges(list).any(|(from, to)| (from..=to).contains(&port))
}

/// First and last port of each range of a list.
pub(super) fn ranges(list: &str) -> impl Iterator<Item = (u16, u16)> {
    list.split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ports_are_single_ones_and_ranges() {
        let list = "8080,9000-9010";
        assert!(is_listed(list, 8080) && is_listed(list, 9010) && !is_listed(list, 9011));
        assert!(!is_listed("", 8080));
    }
}
