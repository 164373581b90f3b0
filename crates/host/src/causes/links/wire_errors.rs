//! Frames that arrive damaged, or that leave without a link.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "A cable, transceiver or port damages frames",
    symptom: "a few packets in a thousand are lost in one direction, at any rate; large transfers crawl",
    evidence: "rx_crc_errors, rx_frame_errors, tx_carrier_errors (`ip -s -s link`); `ethtool -S`: crc, symbol, \
               align and fec errors",
    remedy: "another cable, clean or other transceivers, another port of the switch; the same FEC at both ends",
    undo: "the old cable",
    counters: &["rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"],
    references: &[
        "Documentation/networking/statistics.rst",
        "include/uapi/linux/if_link.h (rx_crc_errors)",
    ],
    is_of_forwarding: true,
    ..Cause::new("wire-errors", check)
};

/// Counters of the kernel.
const KERNEL: [&str; 3] = ["rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"];
/// Parts of names of drivers' counters.
const DRIVER: [&str; 6] =
    ["crc_err", "symbol_err", "align_err", "uncorrectable", "fcs_err", "carrier_err"];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view) {
        let Some(window) = notes.window(view) else { return };
        judge(window, &link.name).into_iter().for_each(|found| notes.find(found));
    }
}

fn judge(window: &Window, name: &str) -> Option<Finding> {
    let prefix = format!("ethtool {name} ");
    let kernel = KERNEL
        .iter()
        .map(|name_of| (format!("statistics of {name}: {name_of}"), window.link(name, name_of)));
    let is_error = |counter: &str| DRIVER.iter().any(|part| counter.to_lowercase().contains(part));
    let of_driver = window.of_prefix(&prefix).filter(|(counter, _)| is_error(counter));
    let of_driver =
        of_driver.map(|(counter, lost)| (format!("ethtool -S {name}: {counter}"), lost));
    let mut errors: Vec<(String, Losses)> =
        kernel.chain(of_driver).filter(|(_, lost)| lost.total > 0).collect();
    errors.sort_by_key(|(_, lost)| std::cmp::Reverse((lost.now, lost.total)));
    let (_, worst) = errors.first()?;
    let packets =
        window.sum(&[&format!("link {name} rx_packets"), &format!("link {name} tx_packets")]);
    // A link that is plugged in damages a few.
    if worst.now == 0 && worst.total < 100 {
        return None;
    }
    let mut found = finding(
        worst.severity(),
        worst.sentence(&format!("frames were damaged on the wire of {name}")),
    )
    .counted(*worst, "frames");
    for (counter, lost) in errors.iter().take(6) {
        found = found.read(counter, lost.evidence());
    }
    Some(
        found
            .read(format!("packets of {name}"), packets.evidence())
            .because(
                "the checksum of the frame is wrong on arrival, or the card sees no carrier while it sends: \
                 the fault is in cable, transceiver or port (Documentation/networking/statistics.rst)",
            )
            .effect("frames arrive whole")
            .risk("the link goes down while it is changed")
            .change(
                "replace the cable or transceiver, and try another port of the switch",
                "the old cable or port",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::finding::Severity;

    #[test]
    fn damaged_frames_are_named_by_either_counter() {
        let judged =
            |counters: &[(&str, u64, u64)]| judge(&Window::with_counters(counters), "eth0");
        let found = judged(&[("link eth0 rx_crc_errors", 5, 25)]).unwrap();
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.contains("20 frames were damaged"), "{}", found.what);
        assert!(judged(&[("ethtool eth0 rx_symbol_err_phy", 0, 9)]).is_some());
        assert_eq!(
            judged(&[("link eth0 rx_crc_errors", 900, 900)]).unwrap().severity,
            Severity::Low
        );
        assert_eq!(
            judged(&[("link eth0 rx_crc_errors", 3, 3)]),
            None,
            "from when it was plugged in"
        );
        assert_eq!(judged(&[("ethtool eth0 rx_csum_offload_errors", 0, 9)]), None);
    }
}
