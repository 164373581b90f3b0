//! Drops at the device for want of descriptors.

use super::{Notes, Scene, Severity, finding};
use crate::net::ethtool;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    for link in scene.interfaces() {
        let rings = scene.system.within(|| ethtool::rings(link.index));
        let Some(rings) = notes.ask(rings) else { continue };
        let counters = ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"];
        for counter in counters {
            let file = format!("{}/statistics/{counter}", link.name);
            let count = scene.system.read_net(&file).ok().and_then(|text| text.parse::<u64>().ok());
            let Some(count) = count.filter(|count| *count > 0) else { continue };
            if rings.rx >= rings.rx_max {
                continue;
            }
            let command = format!("{}ethtool -G {} rx", scene.prefix(), link.name);
            notes.find(
                finding(
                    Severity::High,
                    format!("{} has dropped for want of descriptors", link.name),
                )
                .read(format!("/sys/class/net/{file}"), count.to_string())
                .read("ethtool rings", format!("rx {} of {}", rings.rx, rings.rx_max))
                .because(
                    "a burst that comes while the CPU is busy must fit the ring \
                         (Documentation/networking/statistics.rst)",
                )
                .effect("longer bursts are survived")
                .risk("the link goes down for a moment; more cache is used")
                .change(format!("{command} {}", rings.rx_max), format!("{command} {}", rings.rx)),
            );
        }
    }
}
