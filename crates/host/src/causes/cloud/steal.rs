//! CPU time that the hypervisor gives to others.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The hypervisor runs other machines on this machine's CPUs (steal time)",
    symptom: "everything is late at random by milliseconds, on all programs at once, while the CPUs look idle or \
              half used",
    evidence: "steal in `/proc/stat` (st in top), by CPU",
    remedy: "a host with fewer machines, CPUs reserved for this one, an instance type without CPU credits",
    undo: "the old host or type",
    counters: &["cpu steal"],
    references: &["proc_stat(5), steal"],
    is_of_forwarding: true,
    ..Cause::new("steal", check)
};

/// Share of the time from which it is reported, costs, and is high, percent.
const SHARE: f64 = 2.0;
const COSTLY: f64 = 5.0;
const LARGE: f64 = 20.0;
/// Ticks from which a share is judged.
const FEW_TICKS: u64 = 50;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    // The machine's CPUs are not judged if one of its namespaces was named.
    if view.system.place().netns.is_some() && view.system.place().root.is_none() {
        return;
    }
    let Some(window) = notes.window(view) else { return };
    let Some(found) = judge(window) else { return };
    notes.find(match super::machine(view) {
        Some(machine) => found.read("/sys/class/dmi/id: sys_vendor, product_name", machine),
        None => found,
    });
}

/// Stolen ticks and all of them; a CPU without work has none stolen, so idle time counts as well.
fn share(time: &dyn Fn(&str) -> u64) -> Option<f64> {
    let names = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let all: u64 = names.iter().map(|name| time(name)).sum();
    (all >= FEW_TICKS).then(|| time("steal") as f64 * 100.0 / all as f64)
}

fn judge(window: &Window) -> Option<Finding> {
    let ticks = |name: &str| window.sum(&[&format!("cpu {name}")]);
    let now = share(&|name| ticks(name).now)?;
    let past = share(&|name| ticks(name).total).unwrap_or(0.0);
    let (percent, severity, confidence) = match (now, past) {
        (now, _) if now >= LARGE => (now, Severity::High, Confidence::Now),
        (now, _) if now >= COSTLY => (now, Severity::Medium, Confidence::Now),
        (now, _) if now >= SHARE => (now, Severity::Low, Confidence::Now),
        (_, past) if past >= COSTLY => (past, Severity::Low, Confidence::Before),
        _ => return None,
    };
    let when = if confidence == Confidence::Now { "now" } else { "since the start" };
    Some(
        finding(
            severity,
            format!(
                "{percent:.0} % of the CPU time of this virtual machine goes to others {when}: packets and \
                 programs wait for the hypervisor"
            ),
        )
        .seen(confidence)
        .costs(format!("{percent:.1} % of the CPU time"))
        .read("/proc/stat: steal, within the window", format!("{now:.1} %"))
        .read("/proc/stat: steal, since the start", format!("{past:.1} %"))
        .because(
            "steal is time in which a virtual CPU was ready to run and the hypervisor ran something else \
             (proc_stat(5))",
        )
        .effect("fewer and shorter pauses of all programs")
        .risk("cost of the larger or dedicated host")
        .change(
            "move this machine to a host or type with CPUs of its own; end what uses up its CPU credits",
            "move it back",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_judged_by_its_share_now_and_before() {
        let judged = |now: u64, past: u64| {
            judge(&Window::with_counters(&[
                ("cpu steal", past, past + now),
                ("cpu idle", 100_000 - past, 100_000 - past + 200 - now),
            ]))
            .map(|found| (found.severity, found.confidence))
        };
        assert_eq!(judged(60, 0), Some((Severity::High, Confidence::Now)));
        assert_eq!(judged(20, 0), Some((Severity::Medium, Confidence::Now)));
        assert_eq!(judged(0, 9_000), Some((Severity::Low, Confidence::Before)));
        assert_eq!(judged(1, 400), None);
    }
}
