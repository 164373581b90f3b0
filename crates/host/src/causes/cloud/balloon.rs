//! Memory that the hypervisor takes from a virtual machine.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The hypervisor takes memory from this machine (balloon)",
    symptom: "pauses of milliseconds while memory is reclaimed, and allocation failures of drivers under load",
    evidence: "balloon_inflate and balloon_deflate in `/proc/vmstat`, against MemAvailable of `/proc/meminfo`",
    remedy: "memory reserved for this machine at the hypervisor, or less use of it here",
    undo: "the old reservation",
    counters: &["vmstat balloon_inflate"],
    references: &["drivers/virtio/virtio_balloon.c"],
    ..Cause::new("balloon", check)
};

/// Shares of all memory: taken, and available, from which and below which it is reported, percent.
const TAKEN: u64 = 10;
const LITTLE: u64 = 15;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    if view.system.place().netns.is_some() && view.system.place().root.is_none() {
        return;
    }
    let Some(window) = notes.window(view) else { return };
    let [inflated, deflated] =
        ["vmstat balloon_inflate", "vmstat balloon_deflate"].map(|name| window.sum(&[name]));
    let taken_kib = inflated.total.saturating_sub(deflated.total) * 4;
    let memory = view.system.read_host("proc/meminfo").unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        let rest = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let (Some(total), Some(available)) = (kib("MemTotal"), kib("MemAvailable")) else { return };
    if taken_kib * 100 < total * TAKEN || available * 100 >= total * LITTLE {
        return;
    }
    let is_now = inflated.now > 0;
    notes.find(
        finding(
            if is_now { Severity::Medium } else { Severity::Low },
            format!(
                "the hypervisor has taken {} MiB of this machine's memory, and only {} MiB are available",
                taken_kib / 1024,
                available / 1024
            ),
        )
        .seen(if is_now { Confidence::Now } else { Confidence::Before })
        .read("/proc/vmstat: balloon_inflate, pages", inflated.evidence())
        .read("/proc/meminfo: MemAvailable", format!("{} of {} MiB", available / 1024, total / 1024))
        .because(
            "pages of the balloon belong to the hypervisor; with few left, allocations wait for reclaim \
             (drivers/virtio/virtio_balloon.c)",
        )
        .effect("allocations of packets and programs succeed at once")
        .risk("the hypervisor has less memory for other machines")
        .change("reserve this machine's memory at the hypervisor", "the old reservation"),
    );
}
