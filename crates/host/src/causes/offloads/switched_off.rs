//! Offloads of interfaces that are switched off.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};
use crate::causes::links::{BUSY_PER_S, by_traffic};
use crate::net::ethtool;
use crate::tune::{Profile, Target};

pub(super) const CAUSE: Cause = Cause {
    title: "Merging or segmentation is off, and throughput is wanted",
    symptom: "bulk transfers end below the rate of the link with one CPU busy",
    evidence: "`ethtool -k IF`: generic-receive-offload, generic-segmentation-offload, \
               tcp-segmentation-offload off and not fixed (judged for the profile throughput)",
    remedy: "ethtool -K IF gro on gso on tso on",
    undo: "ethtool -K IF with the old values",
    references: &["Documentation/networking/segmentation-offloads.rst"],
    is_of_forwarding: true,
    ..Cause::new("offloads", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    if !view.is_for(Profile::Throughput) {
        return;
    }
    for link in view.interfaces() {
        let offloads = view.system.within(|| ethtool::offloads(link.index));
        let Some(offloads) = notes.ask(offloads) else { continue };
        for (feature, short, effect) in [
            ("rx-gro", "gro", "the stack processes many packets of a flow at once"),
            ("tx-generic-segmentation", "gso", "large packets cross the stack in one piece"),
            ("tx-tcp-segmentation", "tso", "the device splits large TCP packets"),
        ] {
            if offloads.get(feature).is_none_or(|state| state.is_on || !state.is_offered) {
                continue;
            }
            let command = format!("{}ethtool -K {} {short}", view.prefix(), link.name);
            let Some(window) = notes.window(view) else { return };
            notes.find(
                finding(
                    by_traffic(window, &link.name, BUSY_PER_S),
                    format!("{short} is off on {}", link.name),
                )
                .read(format!("ethtool features of {}", link.name), format!("{feature} off"))
                .because(
                    "each packet has the same cost in the stack, whatever its size \
                         (Documentation/networking/segmentation-offloads.rst)",
                )
                .effect(effect)
                .change(format!("{command} on"), format!("{command} off"))
                .setting(short, &Target::Interface(link.name.clone()), "on"),
            );
        }
    }
}
