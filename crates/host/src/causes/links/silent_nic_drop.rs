//! Frames that a card loses and that only its driver counts.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The card loses frames that only its driver counts",
    symptom: "packets are missing at the program, and rx_missed_errors, socket drops and softnet drops are 0",
    evidence: "`ethtool -S` has growing counters with drop, discard, miss, no_buf, overrun or fail in their \
               names, and `ip -s -s link` has none of them; some drivers (vmxnet3, enic, ena, cxgb4) count a \
               full ring in rx_dropped",
    remedy: "the driver's documentation of that counter; a longer ring, more queues, a newer driver",
    undo: "the old settings",
    counters: &["rx_dropped"],
    references: &[
        "Documentation/networking/statistics.rst",
        "https://github.com/the-tcpdump-group/libpcap/issues/1329",
    ],
    is_of_forwarding: true,
    ..Cause::new("silent-nic-drop", check)
};

/// Parts of names of counters of lost frames.
const LOST: [&str; 8] =
    ["drop", "discard", "miss", "no_buf", "nobuf", "overrun", "alloc_fail", "oob"];
/// Parts of names of those that count something else: wanted drops, and frames that were no loss.
const OTHER: [&str; 7] = ["xdp", "steer", "filter", "csum", "cache", "reuse", "tx_"];
/// Counters of a full ring, which have a finding of their own.
const RING: [&str; 4] =
    ["rx_missed_errors", "rx_out_of_buffer", "rx_no_dma_resources", "rx_nodesc"];

/// True for the name of a counter of lost frames, in any case and with the number of a queue.
fn is_loss(name: &str) -> bool {
    let name = name.to_lowercase().replace(' ', "_");
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    has(&LOST) && !has(&OTHER) && !has(&RING)
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view) {
        let Some(window) = notes.window(view) else { return };
        let judged = judge(window, &link.name, &view.system.driver(&link.name), &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

fn judge(window: &Window, name: &str, driver: &str, prefix: &str) -> Option<Finding> {
    let of_driver = format!("ethtool {name} ");
    let lost: Vec<(&str, Losses)> = window
        .of_prefix(&of_driver)
        .filter(|(name, lost)| lost.total > 0 && is_loss(name))
        .collect();
    let (worst, most) = lost.iter().max_by_key(|(_, lost)| (lost.now, lost.total))?;
    let (missed, dropped) =
        (window.link(name, "rx_missed_errors"), window.link(name, "rx_dropped"));
    // The kernel's own counter says the same.
    if missed.total >= most.total {
        return None;
    }
    let mut found = finding(
        most.severity(),
        format!(
            "the card of {name} ({driver}) loses frames that the kernel's counters of errors do not show: {}",
            most.sentence(&format!("frames were lost as {worst}"))
        ),
    )
    .counted(*most, "frames")
    .read(format!("/sys/class/net/{name}/statistics/rx_missed_errors"), missed.total.to_string())
    .read(format!("/sys/class/net/{name}/statistics/rx_dropped"), dropped.evidence());
    for (counter, lost) in lost.iter().take(8) {
        found = found.read(format!("ethtool -S {name}: {counter}"), lost.evidence());
    }
    Some(
        found
            .because(
                "drivers count losses of the card under names of their own, and some report a full ring as \
                 rx_dropped (Documentation/networking/statistics.rst)",
            )
            .effect("frames reach the stack")
            .risk("the link goes down briefly when a ring or the queues change")
            .change(
                format!(
                    "{prefix}ethtool -G {name} rx N up to the maximum of `ethtool -g {name}`, more queues \
                     (`ethtool -L`), or a newer driver"
                ),
                format!("{prefix}ethtool -G {name} rx with the old length"),
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::finding::Severity;

    #[test]
    fn loss_of_the_driver_alone_is_named_and_other_counters_are_not() {
        let judged = |counters: &[(&str, u64, u64)]| {
            judge(&Window::with_counters(counters), "eth0", "vmxnet3", "")
        };
        let found = judged(&[
            ("link eth0 rx_missed_errors", 0, 0),
            ("ethtool eth0 pkts rx OOB", 5, 905),
            ("ethtool eth0 rx_queue_0_xdp_drops", 0, 70),
        ]);
        let found = found.unwrap();
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.contains("900 frames were lost as pkts rx OOB"), "{}", found.what);
        let past = judged(&[("ethtool eth0 rx_discards_phy", 9, 9)]).unwrap();
        assert_eq!(past.severity, Severity::Low);
        for benign in
            ["rx_xdp_drop", "rx_cache_full", "rx_steer_missed_packets", "tx_drops", "rx_kicks"]
        {
            assert_eq!(judged(&[(&format!("ethtool eth0 {benign}"), 0, 50)]), None, "{benign}");
        }
        // The kernel has it, too: a finding of the ring.
        let both = [("link eth0 rx_missed_errors", 0, 50), ("ethtool eth0 rx_miss_count", 0, 50)];
        assert_eq!(judged(&both), None);
    }
}
