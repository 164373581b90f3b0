//! Multicast that a router receives and does not forward.

use std::collections::BTreeMap;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "a multicast router does not forward a group",
    symptom: "members on the sender's own network get the group, and those behind the router do not",
    evidence: "packets, wrong interfaces and outputs of each entry in /proc/net/ip_mr_cache; packets out of the \
               router's interfaces in /proc/net/ip_mr_vif",
    remedy: "a TTL above 1 at the sender (IP_MULTICAST_TTL); an entry with the interface that the group arrives on; \
             a group outside of 224.0.0.0/24",
    undo: "the previous TTL or entry",
    counters: &["IpExtInMcastPkts", "IpExtOutMcastPkts"],
    references: &[
        "ip(7), IP_MULTICAST_TTL",
        "net/ipv4/ipmr.c",
        "troglobit/smcroute#150",
        "troglobit/mrouted#42",
    ],
    is_of_forwarding: true,
    ..Cause::new("mcast-forward", check)
};

/// Packets a second of a wrong interface that a router has by its own echoes.
const ECHOES_MAX: u64 = 10;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let mut entries: BTreeMap<&str, BTreeMap<&str, Losses>> = BTreeMap::new();
    for (row, count) in window.of_prefix("mroute ") {
        if let Some((entry, column)) = row.rsplit_once(' ') {
            entries.entry(entry).or_default().insert(column, count);
        }
    }
    for (entry, columns) in &entries {
        let of = |name: &str| columns.get(name).copied().unwrap_or(window.losses(0, 0));
        let (packets, wrong) = (of("packets"), of("wrong"));
        let (lost, why, change, undo) = if wrong.now >= ECHOES_MAX {
            (
                wrong,
                "they arrive on another interface than its entry names",
                "let the routing daemon expect it there (its route to the sender leads elsewhere), or move the sender",
                "the previous route",
            )
        } else if of("unresolved").total > 0 {
            (
                window.losses(0, 1),
                "no entry says where to",
                "a route for the group in the multicast routing daemon (smcroute, pimd), and its restart",
                "remove the route",
            )
        } else if packets.now > 0 && of("outputs").total > 0 && forwarded(window).now == 0 {
            (
                packets,
                "their TTL is not above the threshold of an output: senders use 1 unless they set another",
                "a TTL of 16 at the sender (IP_MULTICAST_TTL; in many programs --ttl); 224.0.0.0/24 is never forwarded",
                "the TTL from before",
            )
        } else {
            continue;
        };
        notes.find(
            finding(lost.severity(), format!("{} and not forwarded: {why}", lost.sentence(&format!("packets of {entry} arrived"))))
                .counted(lost, "packets")
                .read(format!("/proc/net/ip_mr_cache: {entry}: Pkts"), packets.evidence())
                .read(format!("/proc/net/ip_mr_cache: {entry}: Wrong"), wrong.evidence())
                .read("/proc/net/ip_mr_vif: PktsOut of all", forwarded(window).evidence())
                .because(
                    "a multicast router forwards a packet that arrives on its entry's interface and whose TTL is above \
                     the threshold of the output (net/ipv4/ipmr.c, ip_mr_forward)",
                )
                .effect("members behind the router get the group")
                .risk("the group may travel further than it should")
                .change(change, undo),
        );
    }
}

fn forwarded(window: &Window) -> Losses {
    let mut all = window.losses(0, 0);
    for (_, one) in window.of_prefix("mroute_out ") {
        all.now += one.now;
        all.total += one.total;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::Severity;

    fn found(rows: &[(&str, u64, u64)]) -> Vec<crate::causes::Finding> {
        let named: Vec<_> =
            rows.iter().map(|(row, a, b)| (format!("mroute{row}"), *a, *b)).collect();
        let named: Vec<_> = named.iter().map(|(name, a, b)| (name.as_str(), *a, *b)).collect();
        super::super::report(&CAUSE, Window::with_counters(&named)).findings
    }

    #[test]
    fn a_short_ttl_a_wrong_interface_and_a_missing_entry_are_told_apart() {
        const ENTRY: &str = " 239.1.1.1 from 10.1.0.1";
        let rows = |packets, wrong, out| {
            [
                (format!("{ENTRY} packets"), 0, packets),
                (format!("{ENTRY} wrong"), 0, wrong),
                (format!("{ENTRY} outputs"), 1, 1),
                ("_out right".to_owned(), 0, out),
            ]
        };
        let findings = |packets, wrong, out| {
            let rows = rows(packets, wrong, out);
            found(&rows.iter().map(|(name, a, b)| (name.as_str(), *a, *b)).collect::<Vec<_>>())
        };
        let ttl = findings(50, 0, 0);
        assert!(ttl[0].what.contains("TTL") && ttl[0].severity == Severity::High, "{ttl:?}");
        assert!(findings(50, 50, 0)[0].what.contains("another interface"));
        assert_eq!(findings(50, 0, 50), []);
        assert_eq!(findings(50, 2, 50), []);
        let unresolved = found(&[(&format!("{ENTRY} unresolved"), 1, 1)]);
        assert!(unresolved[0].what.contains("no entry"), "{unresolved:?}");
    }
}
