//! No room for another entry in the table of tracked connections.

use std::collections::BTreeMap;

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Finding, Notes, Severity, finding};
use crate::net::Connection;

/// Share of the table from which it is called nearly full, percent.
const NEARLY_FULL: u64 = 90;

pub(super) const CAUSE: Cause = Cause {
    title: "The table of tracked connections is full",
    symptom: "new connections time out at random while existing ones work; the kernel logs \"nf_conntrack: table full, \
              dropping packet\"; it gets worse with load or with a scan",
    evidence: "nf_conntrack_count close to nf_conntrack_max; drop and early_drop of /proc/net/stat/nf_conntrack grow",
    remedy: "nf_conntrack_max to twice the number of entries, its hash table to a quarter of that, shorter time-outs, or \
             notrack for flows that need no translation",
    undo: "the old nf_conntrack_max and buckets",
    counters: &["nf_conntrack drop", "nf_conntrack early_drop"],
    references: &["https://docs.kernel.org/networking/nf_conntrack-sysctl.html"],
    is_of_forwarding: true,
    ..Cause::new("ct-full", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let entries = evidence.number("net/netfilter/nf_conntrack_count").unwrap_or(0);
    let entries_max = evidence.number("net/netfilter/nf_conntrack_max").unwrap_or(0);
    let Some(found) = judge(window, entries, entries_max) else { return };
    let largest = evidence.connections().ok().and_then(largest_group);
    notes.find(match largest {
        Some((group, count)) => {
            found.read("conntrack -L: largest group", format!("{count} entries {group}"))
        }
        None => found,
    });
}

/// - `entries_max`: 0 for no limit.
fn judge(window: &Window, entries: u64, entries_max: u64) -> Option<Finding> {
    // A packet whose entry could not be inserted is counted as dropped, too.
    let dropped =
        window.sum(&["nf_conntrack drop"]).without(window.sum(&["nf_conntrack insert_failed"]));
    let evicted = window.sum(&["nf_conntrack early_drop"]);
    let share = (entries * 100).checked_div(entries_max).unwrap_or(0);
    let losses = window.losses(0, dropped.now + evicted.now);
    if losses.now == 0 && dropped.total == 0 && share < NEARLY_FULL {
        return None;
    }
    let full =
        format!("the table of tracked connections has {entries} of at most {entries_max} entries");
    let found = if losses.now > 0 {
        let what =
            losses.sentence("packets of new connections were dropped or pushed out another entry");
        finding(losses.severity(), format!("{what}: {full}")).counted(losses, "connections")
    } else if share >= NEARLY_FULL {
        finding(Severity::Medium, format!("{full}: soon, new connections are dropped"))
    } else {
        finding(
            dropped.severity(),
            dropped.sentence("packets were dropped because no connection could be tracked"),
        )
        .counted(dropped, "packets")
    };
    let wanted = entries.max(entries_max) * 2;
    Some(
        found
            .read("/proc/sys/net/netfilter/nf_conntrack_count", entries.to_string())
            .read("/proc/sys/net/netfilter/nf_conntrack_max", entries_max.to_string())
            .read("/proc/net/stat/nf_conntrack: drop", dropped.evidence())
            .read("/proc/net/stat/nf_conntrack: early_drop", evicted.evidence())
            .because(
                "a packet that begins a connection is dropped if it can have no entry \
                 (Documentation/networking/nf_conntrack-sysctl.rst, nf_conntrack_max)",
            )
            .effect("new connections are accepted")
            .risk("320 bytes of memory for each entry; a scan or a flood fills a larger table, too")
            .change(
                format!(
                    "in the host's own namespace: sysctl -w net.netfilter.nf_conntrack_max={wanted} \
                     net.netfilter.nf_conntrack_buckets={}",
                    wanted / 4
                ),
                format!("sysctl -w net.netfilter.nf_conntrack_max={entries_max}, and the old nf_conntrack_buckets"),
            ),
    )
}

/// Most frequent destination of the entries, in words, and its number of entries.
fn largest_group(connections: &[Connection]) -> Option<(String, usize)> {
    let mut groups = BTreeMap::new();
    for one in connections {
        *groups.entry((one.protocol, one.original.destination)).or_insert(0) += 1;
    }
    let ((protocol, to), count) = groups.into_iter().max_by_key(|(_, count)| *count)?;
    Some((format!("of protocol {protocol} to {to}"), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(counters: &[(&str, u64, u64)], entries: u64) -> Option<Severity> {
        judge(&Window::with_counters(counters), entries, 1000).map(|found| found.severity)
    }

    #[test]
    fn drops_of_a_full_table_are_high_and_a_nearly_full_one_is_medium() {
        assert_eq!(judged(&[("nf_conntrack drop", 5, 9)], 1000), Some(Severity::High));
        assert_eq!(judged(&[("nf_conntrack early_drop", 0, 9)], 990), Some(Severity::High));
        assert_eq!(judged(&[], 950), Some(Severity::Medium));
        assert_eq!(judged(&[("nf_conntrack drop", 5, 5)], 100), Some(Severity::Low));
        assert_eq!(judged(&[("nf_conntrack drop", 0, 0)], 100), None);
    }

    #[test]
    fn drops_of_failed_insertions_have_a_cause_of_their_own() {
        let counters = [("nf_conntrack drop", 0, 4), ("nf_conntrack insert_failed", 0, 4)];
        assert_eq!(judged(&counters, 100), None);
        assert!(judge(&Window::with_counters(&[]), 1 << 20, 0).is_none(), "no limit");
    }
}
