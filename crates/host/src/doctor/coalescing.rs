//! Interrupts that are held back although packets are to be quick.

use super::{Notes, Scene, Severity, finding};
use crate::net::ethtool;
use crate::tune::Profile;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    if !scene.is_for(Profile::Latency) {
        return;
    }
    for link in scene.interfaces() {
        let now = scene.system.within(|| ethtool::coalesce(link.index));
        let Some(now) = notes.ask(now) else { continue };
        let rx_us = now.rx_us.unwrap_or(0);
        let is_adaptive = now.is_adaptive_rx == Some(true);
        if rx_us == 0 && !is_adaptive {
            continue;
        }
        let command = format!("{}ethtool -C {}", scene.prefix(), link.name);
        // A driver refuses a whole command for a word that it does not know.
        let quick =
            [now.is_adaptive_rx.map(|_| "adaptive-rx off"), now.rx_us.map(|_| "rx-usecs 0")];
        let before = [
            now.is_adaptive_rx.map(|on| format!("adaptive-rx {}", if on { "on" } else { "off" })),
            now.rx_us.map(|us| format!("rx-usecs {us}")),
        ];
        let [quick, before] = [
            quick.into_iter().flatten().collect::<Vec<_>>().join(" "),
            before.into_iter().flatten().collect::<Vec<_>>().join(" "),
        ];
        notes.find(
            finding(Severity::Medium, format!("{} holds interrupts back", link.name))
                .read(format!("ethtool coalescing of {}", link.name), before.clone())
                .because("a packet waits that long before the CPU hears of it (ethtool(8), -C)")
                .effect("up to that much less latency")
                .risk("more interrupts, and more CPU time at high rates")
                .change(format!("{command} {quick}"), format!("{command} {before}")),
        );
    }
}
