//! Listeners that are closed with connections in their queue.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use super::connections::counted;
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "A reload closes a listener, and the connections in its queue are reset",
    symptom: "Some clients get `Connection reset by peer` or `refused` at each reload or restart of a server or \
              balancer, although the new process listens before the old one ends.",
    evidence: "A listener with connections in its queue at the first sample that is another socket, or gone, at the \
               second one, and TcpOutRsts that rises meanwhile; net.ipv4.tcp_migrate_req=0.",
    remedy: "Pass the listening socket to the new process (socket activation, SCM_RIGHTS), or with SO_REUSEPORT set \
             net.ipv4.tcp_migrate_req=1, and drain before the old process ends.",
    undo: "net.ipv4.tcp_migrate_req=0.",
    counters: &["TcpOutRsts", "TcpExtTCPMigrateReqFailure"],
    references: &[
        "Documentation/networking/ip-sysctl.rst, tcp_migrate_req",
        "haproxy/haproxy#3472",
        "aws/opsworks-cookbooks#40",
    ],
    ..Cause::new("reload", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let resets = window.sum(&["TcpOutRsts"]);
    if resets.now == 0 {
        return;
    }
    let closed = closed(window);
    let migrates = evidence.number("net/ipv4/tcp_migrate_req");
    for (address, sockets) in closed.into_iter().take(4) {
        let lost: u32 = sockets.iter().map(|one| one.receive_queue).sum();
        let now: Vec<_> = listeners(&window.after.tcp).filter(|one| one.local == address).collect();
        let is_open = match now.first() {
            Some(one) => format!("{} listens there now", evidence.owner(one.inode)),
            None => "nothing listens there now".to_owned(),
        };
        // A queue that was empty at the first sample may have filled; a listener that just ends loses nothing.
        if lost == 0 && now.is_empty() {
            continue;
        }
        let severity = if lost > 0 { Severity::High } else { Severity::Low };
        let set =
            |value: u64| format!("{}sysctl -w net.ipv4.tcp_migrate_req={value}", evidence.prefix());
        notes.find(
            finding(
                severity,
                format!(
                    "{} of {address} closed within a second, with {} in the queue: {} resets were sent ({is_open})",
                    counted(sockets.len(), "listener"),
                    counted(lost as usize, "connection"),
                    resets.now
                ),
            )
            .seen(if lost > 0 { Confidence::Now } else { Confidence::Possible })
            .costs(format!("{:.0} resets a second", resets.per_second()))
            .read("/proc/net/snmp: Tcp OutRsts", resets.evidence())
            .read(format!("sock_diag: queue of the listener of {address} at the first sample"), lost.to_string())
            .read("/proc/sys/net/ipv4/tcp_migrate_req", migrates.map_or("not in this kernel".to_owned(), |one| one.to_string()))
            .because(
                "connections whose handshake is complete belong to the listener: the kernel resets those that it has \
                 not accepted when it closes (ip-sysctl.rst, tcp_migrate_req)",
            )
            .effect("clients do not notice a reload")
            .risk("tcp_migrate_req moves connections to any listener of the same SO_REUSEPORT group")
            .change(
                format!("pass the listening socket to the new process, or with SO_REUSEPORT: {}", set(1)),
                set(migrates.unwrap_or(0)),
            ),
        );
    }
}

fn listeners(sockets: &[TcpSocket]) -> impl Iterator<Item = &TcpSocket> {
    sockets.iter().filter(|one| one.state == TcpState::Listen)
}

/// Addresses with listeners that were closed within the window.
fn closed(window: &Window) -> Vec<(SocketAddr, Vec<&TcpSocket>)> {
    let after: BTreeSet<_> = listeners(&window.after.tcp).map(|one| one.inode).collect();
    let gone = listeners(&window.before.tcp).filter(|one| !after.contains(&one.inode));
    let mut by_address: std::collections::BTreeMap<SocketAddr, Vec<&TcpSocket>> =
        Default::default();
    for one in gone {
        by_address.entry(one.local).or_default().push(one);
    }
    by_address.into_iter().collect()
}
