//! Segments that are lost on the way.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::connections::{Connection, connections, counted, is_internal, listed, programs};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "Segments to a far end are sent again: they are lost, or late, on the way",
    symptom: "Transfers to some hosts are slow or uneven, requests take 200 ms and more at random.",
    evidence: "tcp_info of the connections with one address: segments sent again against segments sent within the \
               window, and duplicates that the far end reported (DSACK: they were late and not lost); TcpRetransSegs.",
    remedy: "The path: a shaper or full queue (`tc -s qdisc`), a link with errors (`ip -s -s link`), a wrong MTU, a \
             policer of the provider.",
    undo: "Depends on the place.",
    counters: &["TcpRetransSegs", "TcpExtTCPFastRetrans", "TcpExtTCPTimeouts"],
    references: &["RFC 6675", "RFC 2883", "tcp(7)"],
    ..Cause::new("tcp-loss", check)
};

/// Fewest segments that are sent again for a finding.
const SEGMENTS_MIN: u64 = 20;

/// Segments with an address within the window.
#[derive(Default)]
struct Path<'a> {
    sent: u64,
    again: u64,
    /// Of those sent again, the ones that were not needed.
    needless: u64,
    connections: Vec<Connection<'a>>,
}

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let total = window.sum(&["TcpRetransSegs"]);
    if total.total == 0 {
        return;
    }
    let mut is_found = false;
    let paths = paths(window);
    let all_sent: u64 = paths.values().map(|path| path.sent).sum();
    for (ip, path) in paths {
        let Some(mut severity) = severity(path.again, path.sent) else { continue };
        if !is_internal(ip) && path.again * 50 < all_sent {
            // A public server has clients on bad links at any time.
            severity = Severity::Low;
        }
        is_found = true;
        let share = path.again as f64 * 100.0 / path.sent.max(1) as f64;
        let sockets: Vec<_> = path.connections.iter().map(|one| one.after).collect();
        let is_late = path.needless * 2 > path.again;
        let loss = if is_late {
            "late or reordered: the far end had most of them"
        } else {
            "lost on the way"
        };
        let found = finding(
            severity,
            format!(
                "{share:.1} % of the segments to {ip} were sent again ({}, {}): they are {loss}",
                counted(sockets.len(), "connection"),
                programs(evidence, &sockets)
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{:.0} segments a second", window.losses(0, path.again).per_second()))
        .read("/proc/net/snmp: Tcp RetransSegs", total.evidence())
        .read(
            "/proc/net/netstat: TcpExt TCPTimeouts",
            window.sum(&["TcpExtTCPTimeouts"]).evidence(),
        )
        .read(
            format!("sock_diag: duplicates that {ip} reported (DSACK)"),
            path.needless.to_string(),
        );
        notes.find(
            listed(found, evidence, sockets, "tcp_info", |one| {
                let info = &one.info;
                format!("{} of {} segments sent again, round trip {:.1} ms", info.total_retrans, info.data_segs_out, f64::from(info.rtt) / 1e3)
            })
            .because(
                "a segment without an acknowledgement is sent again and the sender slows down; queues that overflow, \
                 links with errors and policers are the usual places (RFC 6675)",
            )
            .effect("transfers at the rate of the path")
            .change(
                format!("find the place: `ip -s -s link` and `tc -s qdisc` on this host and on each hop of `mtr -T {ip}`"),
                "depends on the place",
            ),
        );
    }
    let sent = window.sum(&["TcpOutSegs"]);
    if !is_found && total.total >= 1000 && total.total * 20 > sent.total {
        let share = total.total * 100 / sent.total.max(1);
        notes.find(
            finding(
                Severity::Low,
                format!("{share} % of all segments were sent again since the start"),
            )
            .counted(total, "segments")
            .seen(Confidence::Before)
            .read("/proc/net/snmp: Tcp RetransSegs", total.evidence())
            .read("/proc/net/snmp: Tcp OutSegs", sent.evidence())
            .because("segments were lost on the way, or far ends were gone (RFC 6298)")
            .effect("transfers at the rate of the path")
            .change(
                "`ss -tin` shows the connections with most of them while it lasts",
                "nothing to undo",
            ),
        );
    }
}

fn severity(again: u64, sent: u64) -> Option<Severity> {
    match again {
        _ if again < SEGMENTS_MIN || again * 50 < sent => None,
        _ if again * 10 >= sent => Some(Severity::High),
        _ => Some(Severity::Medium),
    }
}

/// Connections on which something came back, by the address of their far end.
fn paths(window: &Window) -> BTreeMap<IpAddr, Path<'_>> {
    let mut paths: BTreeMap<IpAddr, Path<'_>> = BTreeMap::new();
    for one in connections(window) {
        let again = one.growth(|info| info.total_retrans.into());
        if one.growth(|info| info.segs_in.into()) == 0 {
            continue;
        }
        let path = paths.entry(one.after.remote.ip()).or_default();
        path.sent += one.growth(|info| info.data_segs_out.into());
        path.again += again;
        path.needless += one.growth(|info| info.dsack_dups.into());
        if again > 0 {
            path.connections.push(one);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_segments_and_a_small_share_are_no_finding() {
        assert_eq!((severity(19, 20), severity(30, 10_000)), (None, None));
        assert_eq!(
            (severity(30, 1000), severity(100, 1000)),
            (Some(Severity::Medium), Some(Severity::High))
        );
    }
}
