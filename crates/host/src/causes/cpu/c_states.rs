//! Idle states of CPUs that packets have to end.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::tune::Profile;

pub(super) const CAUSE: Cause = Cause {
    title: "Deep idle states delay the first packet after each pause",
    symptom: "requests one after another are slower than many at once; latency falls when the host is busy",
    evidence: "`/sys/devices/system/cpu/cpu*/cpuidle/state*/usage` grows for states with a long exit latency at \
               CPUs that process packets",
    remedy: "hold /dev/cpu_dma_latency at 0 while latency matters, disable the deep states, or boot with \
             processor.max_cstate=1",
    undo: "release it, or enable the states",
    references: &[
        "Documentation/admin-guide/pm/cpuidle.rst",
        "https://github.com/ceph/ceph/pull/5013",
    ],
    ..Cause::new("c-states", check)
};

/// Exit latency from which a state is deep: for the profile latency, and for others.
const DEEP_US: u64 = 20;
const VERY_DEEP_US: u64 = 100;
/// Entries, and packets of the same CPU, within the window, from which a finding is made.
const FEW: u64 = 10;

struct Deep {
    cpu: usize,
    state: usize,
    exit_us: u64,
    entries: u64,
    packets: u64,
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    // The machine's CPUs are not judged if one of its namespaces was named.
    if view.system.place().netns.is_some() && view.system.place().root.is_none() {
        return;
    }
    let Some(window) = notes.window(view) else { return };
    let is_quick = view.is_for(Profile::Latency);
    let least_us = if is_quick { DEEP_US } else { VERY_DEEP_US };
    let used = window.of_prefix("idle cpu").filter(|(_, entries)| entries.now >= FEW);
    let deep = used.filter_map(|(name, entries)| {
        let (cpu, state) = name.split_once(" state")?;
        let (cpu, state) = (cpu.parse().ok()?, state.parse().ok()?);
        let file = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/latency");
        let exit_us = view.system.read_host(&file).ok()?.parse().ok()?;
        let packets = window.sum(&[&format!("softnet cpu{cpu} processed")]).now;
        Some(Deep { cpu, state, exit_us, entries: entries.now, packets })
    });
    let concerns = |one: &Deep| match view.app_cpu {
        Some(app) => one.cpu == app,
        None => one.packets >= FEW,
    };
    let worst = deep
        .filter(|one| one.exit_us >= least_us && concerns(one))
        .max_by_key(|one| (one.exit_us, one.entries));
    let Some(one) = worst else { return };
    let folder = format!("/sys/devices/system/cpu/cpu{}/cpuidle/state{}", one.cpu, one.state);
    let name = view.system.read_host(&format!("{}/name", &folder[1..])).unwrap_or_default();
    notes.find(
        finding(
            if is_quick { Severity::Medium } else { Severity::Low },
            format!(
                "CPU {} sleeps in {name} between packets, {} times a second: the first packet after a pause \
                 waits {} us",
                one.cpu, one.entries, one.exit_us
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("up to {} us for each of {} wake-ups a second", one.exit_us, one.entries))
        .read(format!("{folder}/usage"), format!("{} more within the window", one.entries))
        .read(format!("{folder}/latency"), format!("{} us", one.exit_us))
        .read(format!("/proc/net/softnet_stat: processed, CPU {}", one.cpu), one.packets.to_string())
        .because(
            "a CPU in a deep state needs that time to run again, before its interrupt is handled \
             (Documentation/admin-guide/pm/cpuidle.rst)",
        )
        .effect("wake-ups take a few microseconds")
        .risk("power and heat, and less turbo for other CPUs")
        .change(
            format!(
                "echo 1 > {folder}/disable   (for each CPU; or hold /dev/cpu_dma_latency at 0: wirepath tune \
                 plan --profile latency)"
            ),
            format!("echo 0 > {folder}/disable"),
        ),
    );
}
