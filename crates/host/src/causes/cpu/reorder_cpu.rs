//! Packets of one flow that overtake each other.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "Packets of one flow overtake each other on several CPUs, ports or paths",
    symptom: "throughput of one connection is low although nothing is lost; a VPN warns of old packet counters; \
              sequence numbers of a feed go back",
    evidence: "TcpExt TCPSACKReorder, TCPTSReorder and TCPRenoReorder (this host sends), TCPDSACKRecv; packets \
               processed by CPU; rps_cpus, queues and bonds of each hop",
    remedy: "steering by flow: RPS to one CPU at each hop, no round robin of bonds, no spreading by packet",
    undo: "the old masks and modes",
    counters: &[
        "TcpExtTCPSACKReorder",
        "TcpExtTCPTSReorder",
        "TcpExtTCPRenoReorder",
        "TcpExtTCPDSACKRecv",
    ],
    references: &[
        "Documentation/networking/scaling.rst",
        "RFC 4737",
        "https://github.com/firezone/firezone/issues/10328",
    ],
    is_of_forwarding: true,
    ..Cause::new("reorder-cpu", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let Some(found) = judge(window) else { return };
    let bonds: Vec<&str> = view
        .interfaces()
        .filter(|link| {
            let mode = view.system.read_net(&format!("{}/bonding/mode", link.name));
            mode.is_ok_and(|mode| mode.starts_with("balance-rr"))
        })
        .map(|link| link.name.as_str())
        .collect();
    let files: Vec<String> = view
        .interfaces()
        .map(|link| format!("/sys/class/net/{}/queues/rx-0/rps_cpus", link.name))
        .take(4)
        .collect();
    notes.find(match bonds.first() {
        Some(bond) => {
            found.read(format!("/sys/class/net/{bond}/bonding/mode"), "balance-rr").change(
                format!(
                    "{}ip link set {bond} type bond mode 802.3ad (down, and with the switch)",
                    view.prefix()
                ),
                format!("{}ip link set {bond} type bond mode balance-rr", view.prefix()),
            )
        }
        None => found.change(
            format!(
                "at each hop that has veth, tunnels or several queues, one CPU for a flow: {}",
                view.in_sysfs(&format!(
                    "echo 1 > {}",
                    files.first().map_or("rps_cpus", String::as_str)
                ))
            ),
            "write the old masks (0 is off)".to_owned(),
        ),
    });
}

/// Reorderings a second, and their share of the segments sent, from which they are reported, and cost.
const FEW_PER_S: f64 = 5.0;
const SHARE: f64 = 0.01;

fn judge(window: &Window) -> Option<Finding> {
    let counters = ["TcpExtTCPSACKReorder", "TcpExtTCPTSReorder", "TcpExtTCPRenoReorder"];
    let reordered = window.sum(&counters);
    let sent = window.sum(&["TcpOutSegs"]);
    let share = reordered.now as f64 / sent.now.max(1) as f64;
    if reordered.per_second() < FEW_PER_S || share < SHARE / 100.0 {
        return None;
    }
    let spurious: Losses = window.sum(&["TcpExtTCPDSACKRecv"]);
    let severity = if share >= SHARE { Severity::Medium } else { Severity::Low };
    let busy = window
        .of_prefix("softnet cpu")
        .filter(|(name, count)| name.ends_with(" processed") && count.now > 0)
        .map(|(name, count)| format!("cpu{}: {}", name.trim_end_matches(" processed"), count.now));
    Some(
        finding(
            severity,
            format!(
                "packets of the same connection overtake each other {:.0} times a second on the way from this \
                 host: receivers wait for the late ones, and TCP sends some again",
                reordered.per_second()
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{:.0} segments a second sent for nothing", spurious.per_second()))
        .read(format!("/proc/net/netstat: {}", counters.join(", ")), reordered.evidence())
        .read("/proc/net/netstat: TcpExt TCPDSACKRecv", spurious.evidence())
        .read("/proc/net/snmp: Tcp OutSegs", sent.evidence())
        .read("/proc/net/softnet_stat: processed within the window", busy.take(8).collect::<Vec<_>>().join(", "))
        .because(
            "senders on several CPUs, queues chosen by packet, and round robin over ports let a later packet \
             arrive first (Documentation/networking/scaling.rst)",
        )
        .effect("one flow keeps its order, and its throughput")
        .risk("one CPU for each flow limits the rate of a single flow"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordering_is_judged_by_its_share_of_what_was_sent() {
        let judged = |reordered: u64, sent: u64| {
            judge(&Window::with_counters(&[
                ("TcpExtTCPSACKReorder", 3, 3 + reordered),
                ("TcpOutSegs", 0, sent),
                ("softnet cpu0 processed", 0, 9),
            ]))
        };
        let found = judged(50, 4000).unwrap();
        assert_eq!(found.severity, Severity::Medium);
        assert!(found.what.contains("50 times a second"), "{}", found.what);
        assert_eq!(judged(50, 100_000).unwrap().severity, Severity::Low);
        assert_eq!(judged(2, 20), None);
        assert_eq!(judged(50, 10_000_000), None);
    }
}
