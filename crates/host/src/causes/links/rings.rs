//! Receive rings of cards that are too short for a burst.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, finding};
use crate::net::ethtool::{self, Rings};
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "The receive ring of a card is too short for the burst",
    symptom: "packets are lost at peaks far below the rate of the link; programs and sockets lose none, and a \
              switch may count pause frames instead",
    evidence: "`ip -s -s link`: missed, fifo, over; `ethtool -S`: rx_missed_errors, rx_no_buffer_count, \
               rx_out_of_buffer, rx_no_dma_resources; `ethtool -g`: ring below its maximum",
    remedy: "ethtool -G IF rx N, at most the maximum of `ethtool -g`; more queues if the ring is at its maximum",
    undo: "ethtool -G IF rx with the old length",
    counters: &["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"],
    references: &[
        "Documentation/networking/statistics.rst",
        "https://github.com/LibreQoE/LibreQoS/issues/417",
    ],
    is_of_forwarding: true,
    ..Cause::new("rings", check)
};

/// Counters of frames for which the card had no descriptor, of the kernel.
const KERNEL: [&str; 3] = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
/// The same, of drivers that count them under other names, in all queues.
const DRIVER: [&str; 6] = [
    "rx_no_buffer_count",
    "rx_out_of_buffer",
    "rx_no_dma_resources",
    "rx_missed_errors",
    "rx_fifo_errors",
    "rx_nodesc_drops",
];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        let Some(window) = notes.window(view) else { return };
        let name = &link.name;
        let counted = |table: &str, counter: &str| {
            (window.row(table, name, counter), format!("{table} {name} {counter}"))
        };
        let kernel = KERNEL.iter().map(|counter| counted("link", counter));
        let driver = DRIVER.iter().map(|counter| counted("ethtool", counter));
        // The same frames are in several of them.
        let worst = kernel.chain(driver).max_by_key(|(lost, _)| (lost.now, lost.total));
        let Some((lost, counter)) = worst.filter(|(lost, _)| lost.total > 0) else { continue };
        let Some(rings) = notes.ask(view.system.within(|| ethtool::rings(link.index))) else {
            continue;
        };
        notes.find(judge(name, &rings, lost, &counter, &view.prefix()));
    }
}

fn judge(name: &str, rings: &Rings, lost: Losses, counter: &str, prefix: &str) -> Finding {
    let found = finding(
        lost.severity(),
        format!(
            "{}: the receive ring of {name} has {} of at most {} descriptors",
            lost.sentence("frames found no descriptor"),
            rings.rx,
            rings.rx_max
        ),
    )
    .counted(lost, "frames")
    .read(format!("counter {counter}"), lost.evidence())
    .read(format!("ethtool rings of {name}"), format!("rx {} of {}", rings.rx, rings.rx_max))
    .because(
        "a burst that arrives while the CPU is busy must fit the ring \
         (Documentation/networking/statistics.rst)",
    )
    .effect("longer bursts are received without loss")
    .risk("the link goes down briefly; more cache is used");
    if rings.rx >= rings.rx_max {
        return found.change(
            format!(
                "the ring is at its maximum, so the CPU is too slow for it: more queues \
                 ({prefix}ethtool -L {name} combined N), and their interrupts at idle CPUs"
            ),
            format!("{prefix}ethtool -L {name} combined with the old number (`ethtool -l {name}`)"),
        );
    }
    let command = format!("{prefix}ethtool -G {name} rx");
    found.change(format!("{command} {}", rings.rx_max), format!("{command} {}", rings.rx)).setting(
        "rings",
        &Target::Interface(name.to_owned()),
        format!("rx={}", rings.rx_max),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::finding::Severity;

    #[test]
    fn ring_is_enlarged_unless_it_is_at_its_maximum() {
        let window = std::time::Duration::from_secs(1);
        let judged = |rx, now| {
            let rings = Rings { rx, rx_max: 4096, ..Rings::default() };
            judge(
                "eth0",
                &rings,
                Losses { now, total: 90, window },
                "link eth0 rx_missed_errors",
                "",
            )
        };
        let short = judged(512, 40);
        assert_eq!(
            (short.severity, short.change.as_str()),
            (Severity::High, "ethtool -G eth0 rx 4096")
        );
        assert_eq!(short.settings[0].value, "rx=4096");
        assert_eq!(judged(512, 0).severity, Severity::Low, "of the past");
        let longest = judged(4096, 40);
        assert!(
            longest.change.contains("more queues") && longest.settings.is_empty(),
            "{longest:?}"
        );
    }
}
