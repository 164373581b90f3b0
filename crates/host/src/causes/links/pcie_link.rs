//! Cards in slots that are slower than their wires.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The PCIe link of the card is narrower or slower than its network",
    symptom: "a card of 25 Gbit/s and more ends far below its rate in one or both directions, and drops at its \
              buffer with idle CPUs",
    evidence: "`/sys/class/net/IF/device/current_link_speed` and current_link_width against their maxima, and \
               `/sys/class/net/IF/speed`",
    remedy: "another slot, the card seated again, the slot's generation and lanes in the firmware's settings",
    undo: "the old slot",
    counters: &["rx_missed_errors"],
    references: &["Documentation/ABI/testing/sysfs-bus-pci (current_link_speed)"],
    is_of_forwarding: true,
    ..Cause::new("pcie-link", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view) {
        let read = |file: &str| view.system.read_net(&format!("{}/{file}", link.name)).ok();
        let lanes = |name: &str| -> Option<Lanes> {
            let speed = read(&format!("device/{name}_link_speed"))?;
            let width = read(&format!("device/{name}_link_width"))?.parse().ok()?;
            Some(Lanes { gt_per_s: speed.split(' ').next()?.parse().ok()?, width })
        };
        let (Some(now), Some(most)) = (lanes("current"), lanes("max")) else { continue };
        let Some(mbit_per_s) = read("speed").and_then(|text| text.parse::<u32>().ok()) else {
            continue;
        };
        let Some(window) = notes.window(view) else { return };
        let missed = window.link(&link.name, "rx_missed_errors").now;
        let judged = judge(&link.name, now, most, mbit_per_s, missed);
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

#[derive(Clone, Copy)]
struct Lanes {
    /// Of a lane, gigatransfers per second.
    gt_per_s: f64,
    width: u32,
}

impl Lanes {
    /// Bits of payload a second, roughly: less the line's code and the headers of packets.
    fn gbit_per_s(self) -> f64 {
        let code = if self.gt_per_s <= 5.0 { 0.8 } else { 128.0 / 130.0 };
        self.gt_per_s * code * f64::from(self.width) * 0.87
    }
}

fn judge(name: &str, now: Lanes, most: Lanes, mbit_per_s: u32, missed: u64) -> Option<Finding> {
    let wire = f64::from(mbit_per_s) / 1e3;
    let (has, could) = (now.gbit_per_s(), most.gbit_per_s());
    if has >= wire {
        return None;
    }
    let severity = if missed > 0 { Severity::Medium } else { Severity::Low };
    let text = |lanes: Lanes| format!("{} GT/s x{}", lanes.gt_per_s, lanes.width);
    Some(
        finding(
            severity,
            format!(
                "{name} has a wire of {wire} Gbit/s and a PCIe link for {has:.0} Gbit/s: {}, of {} that the card \
                 can do",
                text(now),
                text(most)
            ),
        )
        .seen(if missed > 0 { Confidence::Now } else { Confidence::SetUp })
        .costs(format!("at most {has:.0} of {wire} Gbit/s"))
        .read(format!("/sys/class/net/{name}/device/current_link_speed, current_link_width"), text(now))
        .read(
            format!("/sys/class/net/{name}/device/max_link_speed, max_link_width"),
            format!("{}, {could:.0} Gbit/s", text(most)),
        )
        .read(format!("/sys/class/net/{name}/speed"), format!("{mbit_per_s} Mbit/s"))
        .because(
            "packets cross the PCIe link to memory, and the card drops what it cannot hand over \
             (Documentation/ABI/testing/sysfs-bus-pci)",
        )
        .effect("the card reaches the rate of its wire")
        .risk("the host has to be switched off")
        .change(
            "put the card into a slot with its lanes and generation, and seat it again",
            "the old slot",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_named_only_if_it_is_slower_than_the_wire() {
        let lanes = |gt_per_s, width| Lanes { gt_per_s, width };
        let judged = |now, mbit, missed| judge("eth0", now, lanes(16.0, 16), mbit, missed);
        let found = judged(lanes(8.0, 4), 100_000, 9).unwrap();
        assert!(found.what.contains("link for 27 Gbit/s: 8 GT/s x4"), "{}", found.what);
        assert_eq!(found.severity, Severity::Medium);
        assert_eq!(judged(lanes(8.0, 4), 100_000, 0).unwrap().severity, Severity::Low);
        assert!(judged(lanes(8.0, 4), 25_000, 9).is_none());
        assert!(judged(lanes(2.5, 1), 1000, 0).is_none(), "Gigabit in one lane");
    }
}
