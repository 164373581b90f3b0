//! How NAPI runs, where packets are to be quick.

use super::{Notes, Scene, Severity, finding};
use crate::tune::{Profile, Target};

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    if !scene.is_for(Profile::Latency) {
        return;
    }
    for link in scene.interfaces() {
        let target = Target::Interface(link.name.clone());
        for (knob, file, what, why, effect) in [
            (
                "threaded-napi",
                "threaded",
                "runs NAPI in threads",
                "a kernel thread has to be woken for each batch \
                 (Documentation/networking/napi.rst, threaded NAPI)",
                "a wake-up less",
            ),
            (
                "gro-flush-timeout",
                "gro_flush_timeout",
                "keeps merged packets for a timer",
                "packets wait for others to merge with until the timer, in nanoseconds, is up \
                 (Documentation/networking/napi.rst, software IRQ coalescing)",
                "up to that much less latency",
            ),
            (
                "napi-defer-hard-irqs",
                "napi_defer_hard_irqs",
                "keeps interrupts off after empty polls",
                "the device's interrupt stays off while a timer polls in its place \
                 (Documentation/networking/napi.rst, software IRQ coalescing)",
                "packets are seen when they arrive",
            ),
        ] {
            let Some(value) = notes.ask(scene.read(knob, &target)) else { continue };
            if value == "0" {
                continue;
            }
            let path = format!("/sys/class/net/{}/{file}", link.name);
            notes.find(
                finding(Severity::Low, format!("{} {what}", link.name))
                    .read(&path, &value)
                    .because(why)
                    .effect(effect)
                    .risk("more CPU time at high rates")
                    .change(
                        scene.in_sysfs(&format!("echo 0 > {path}")),
                        scene.in_sysfs(&format!("echo {value} > {path}")),
                    ),
            );
        }
    }
}
