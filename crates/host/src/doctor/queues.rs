//! Queues in use, and offloads that are off although the device has them.

use super::{Notes, Scene, Severity, finding};
use crate::net::ethtool;
use crate::tune::Profile;

pub(super) fn channels(scene: &Scene, notes: &mut Notes<'_>) {
    let cpus = scene.system.online_cpus().len() as u32;
    if scene.is_for(Profile::Latency) {
        return;
    }
    for link in scene.interfaces() {
        let channels = scene.system.within(|| ethtool::channels(link.index));
        let Some(now) = notes.ask(channels) else { continue };
        for (kind, used, most) in [
            ("rx", now.rx, now.rx_max),
            ("tx", now.tx, now.tx_max),
            ("combined", now.combined, now.combined_max),
        ] {
            let wanted = most.min(cpus);
            if most == 0 || used >= wanted || (kind != "combined" && now.combined_max > 0) {
                continue;
            }
            let command = format!("{}ethtool -L {} {kind}", scene.prefix(), link.name);
            notes.find(
                finding(
                    Severity::Low,
                    format!("{} uses {used} of {most} {kind} queues", link.name),
                )
                .read(format!("ethtool channels of {}", link.name), format!("{kind} {used}"))
                .read("/sys/devices/system/cpu/online", format!("{cpus} CPUs"))
                .because(
                    "each queue is served by one CPU at a time \
                         (Documentation/networking/scaling.rst)",
                )
                .effect("flows use more CPUs; a single flow gains nothing")
                .risk("steering of the queues is reset")
                .change(format!("{command} {wanted}"), format!("{command} {used}")),
            );
        }
    }
}

pub(super) fn offloads(scene: &Scene, notes: &mut Notes<'_>) {
    if !scene.is_for(Profile::Throughput) {
        return;
    }
    for link in scene.interfaces() {
        let offloads = scene.system.within(|| ethtool::offloads(link.index));
        let Some(offloads) = notes.ask(offloads) else { continue };
        for (feature, short, effect) in [
            ("rx-gro", "gro", "the stack takes many packets of a flow at once"),
            ("tx-generic-segmentation", "gso", "large packets cross the stack whole"),
            ("tx-tcp-segmentation", "tso", "the device cuts large TCP packets"),
        ] {
            if offloads.get(feature).is_none_or(|state| state.is_on || !state.is_offered) {
                continue;
            }
            let command = format!("{}ethtool -K {} {short}", scene.prefix(), link.name);
            notes.find(
                finding(Severity::Medium, format!("{short} is off on {}", link.name))
                    .read(format!("ethtool features of {}", link.name), format!("{feature} off"))
                    .because(
                        "each packet costs its way through the stack, whatever its size \
                         (Documentation/networking/segmentation-offloads.rst)",
                    )
                    .effect(effect)
                    .change(format!("{command} on"), format!("{command} off")),
            );
        }
    }
}
