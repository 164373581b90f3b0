//! No room for another neighbour.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Finding, Notes, Severity, finding};

/// Share of the table from which it is called nearly full, percent.
const NEARLY_FULL: u64 = 90;

pub(super) const CAUSE: Cause = Cause {
    title: "The neighbour table is full",
    symptom: "hosts of the own network are unreachable at random on a large network or with many containers; ENOBUFS; the kernel \
              logs \"neighbour: arp_cache: neighbor table overflow!\"",
    evidence: "table_fulls of /proc/net/stat/arp_cache and ndisc_cache grow; entries close to gc_thresh3; one table for all \
               namespaces, in which entries younger than 5 s are not removed",
    remedy: "net.ipv4.neigh.default.gc_thresh1, 2 and 3 above the number of neighbours, and the same of ipv6",
    undo: "128, 512 and 1024",
    counters: &["arp_cache table_fulls", "ndisc_cache table_fulls"],
    reasons: &["NEIGH_CREATEFAIL"],
    references: &[
        "https://man7.org/linux/man-pages/man7/arp.7.html",
        "https://github.com/e2b-dev/infra/pull/3508",
        "https://github.com/QubesOS/qubes-issues/issues/355",
    ],
    is_of_forwarding: true,
    ..Cause::new("neigh-full", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    for (version, cache) in [("ipv4", "arp_cache"), ("ipv6", "ndisc_cache")] {
        // The thresholds are files of the first namespace alone.
        let threshold = |number: u32| {
            let file = format!("proc/sys/net/{version}/neigh/default/gc_thresh{number}");
            evidence.system.read_host(&file).ok()?.trim().parse().ok()
        };
        let thresholds = [1, 2, 3].map(|number| threshold(number).unwrap_or(0));
        if let Some(found) = judge(window, version, cache, thresholds) {
            notes.find(found);
        }
    }
}

/// - `thresholds`: gc_thresh1 to 3; 0 if not known.
fn judge(window: &Window, version: &str, cache: &str, thresholds: [u64; 3]) -> Option<Finding> {
    let [first, second, third] = thresholds;
    let refused = window.sum(&[&format!("{cache} table_fulls")]);
    let entries = window.latest(&format!("{cache} entries")).unwrap_or(0);
    let is_nearly_full = third > 0 && entries * 100 >= third * NEARLY_FULL;
    if refused.total == 0 && !is_nearly_full {
        return None;
    }
    let name = if version == "ipv4" { "ARP" } else { "IPv6 neighbour" };
    let full = format!("the {name} table has {entries} of at most {third} entries");
    let found = if refused.now > 0 {
        finding(
            refused.severity(),
            format!(
                "{}: {full}",
                refused.sentence("neighbours got no entry and could not be reached")
            ),
        )
        .counted(refused, "packets")
    } else if is_nearly_full {
        finding(Severity::Medium, format!("{full}: soon, new neighbours cannot be reached"))
    } else {
        finding(
            refused.severity(),
            format!("{}: {full} now", refused.sentence("neighbours got no entry since boot")),
        )
        .counted(refused, "packets")
    };
    let set = |values: [u64; 3]| {
        let names = values
            .iter()
            .enumerate()
            .map(|(at, value)| format!("net.{version}.neigh.default.gc_thresh{}={value}", at + 1));
        format!("in the host's own namespace: sysctl -w {}", names.collect::<Vec<_>>().join(" "))
    };
    let wanted = entries.max(third).max(1024) * 2;
    Some(
        found
            .read(format!("/proc/net/stat/{cache}: table_fulls"), refused.evidence())
            .read(format!("/proc/net/stat/{cache}: entries, of all namespaces"), entries.to_string())
            .read(
                format!("/proc/sys/net/{version}/neigh/default/gc_thresh1, 2, 3"),
                format!("{first}, {second}, {third}"),
            )
            .because(
                "above gc_thresh3, no neighbour is added, and packets to it fail with ENOBUFS; the table is one for all \
                 namespaces (arp(7), Documentation/networking/ip-sysctl.rst, neigh/default/gc_thresh3)",
            )
            .effect("all neighbours can be reached")
            .risk("some hundred bytes for each entry; a scan of a large network fills a larger table, too")
            .change(set([wanted / 4, wanted / 2, wanted]), set([first, second, third])),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(counters: &[(&str, u64, u64)]) -> Option<Severity> {
        let window = Window::with_counters(counters);
        judge(&window, "ipv4", "arp_cache", [128, 512, 1024]).map(|found| found.severity)
    }

    #[test]
    fn refused_entries_are_high_and_a_nearly_full_table_is_medium() {
        let entries = ("arp_cache entries", 0, 1024);
        assert_eq!(judged(&[("arp_cache table_fulls", 4, 9), entries]), Some(Severity::High));
        assert_eq!(judged(&[("arp_cache entries", 0, 930)]), Some(Severity::Medium));
        assert_eq!(judged(&[("arp_cache table_fulls", 9, 9)]), Some(Severity::Low));
        assert_eq!(judged(&[("arp_cache entries", 0, 330)]), None);
        assert!(judge(&Window::with_counters(&[entries]), "ipv4", "arp_cache", [0; 3]).is_none());
    }
}
