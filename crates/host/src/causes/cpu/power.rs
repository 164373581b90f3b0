//! Idle states, frequency and memory settings of CPUs.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::tune::{Profile, Target};

pub(super) const CAUSE: Cause = Cause {
    title: "CPUs change their frequency, sleep deeply, or assemble huge pages",
    symptom: "the first packets after a pause are slow, and some packets wait for a page fault",
    evidence: "scaling_governor is not performance; deep cpuidle states are enabled; transparent_hugepage is always (the last two judged for the profile latency)",
    remedy: "governor performance, deep states disabled, transparent_hugepage madvise",
    undo: "write the old values",
    references: &[
        "Documentation/admin-guide/pm/cpufreq.rst",
        "Documentation/admin-guide/pm/cpuidle.rst",
        "Documentation/admin-guide/mm/transhuge.rst",
    ],
    ..Cause::new("cpu", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    // Settings of the machine are not judged if one of its namespaces was named.
    if view.system.place().netns.is_some() && view.system.place().root.is_none() {
        return;
    }
    let online = view.system.online_cpus();
    let cpus: Vec<usize> = match view.app_cpu {
        Some(cpu) => vec![cpu],
        None => online,
    };
    let is_quick = view.is_for(Profile::Latency);
    for cpu in &cpus {
        let target = Target::Cpu(*cpu as u32);
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        if let Some(governor) = notes.ask(view.read("governor", &target))
            && view.profile.is_some()
            && governor != "performance"
        {
            let file = format!("{folder}/cpufreq/scaling_governor");
            notes.find(
                finding(Severity::Low, format!("CPU {cpu} changes its frequency"))
                    .read(&file, &governor)
                    .because(
                        "after a pause the CPU is slow until the governor reacts \
                         (Documentation/admin-guide/pm/cpufreq.rst)",
                    )
                    .effect("the first packets after a pause are as fast as the others")
                    .risk("power")
                    .change(
                        format!("echo performance > {file}"),
                        format!("echo {governor} > {file}"),
                    )
                    .setting("governor", &target, "performance"),
            );
        }
        if is_quick
            && let Some(states) = notes.ask(view.read("idle-states", &target))
            && states.split(' ').any(|state| state.ends_with("=0") && !state.starts_with("state0"))
        {
            notes.find(
                finding(Severity::Low, format!("CPU {cpu} may enter deep idle states"))
                    .read(format!("{folder}/cpuidle/*/disable"), &states)
                    .because(
                        "leaving a deep idle state takes tens to hundreds of microseconds \
                         (Documentation/admin-guide/pm/cpuidle.rst)",
                    )
                    .effect("wake-ups take less time")
                    .risk("power and heat")
                    .change(
                        "wirepath tune plan --profile latency, or hold /dev/cpu_dma_latency at 0",
                        "wirepath tune rollback",
                    ),
            );
        }
    }
    if !is_quick {
        return;
    }
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if notes.ask(view.read("huge-pages", &Target::Host)).as_deref() == Some("always") {
        notes.find(
            finding(Severity::Low, "huge pages are used whenever possible")
                .read(file, "always")
                .because(
                    "a page fault may wait for one to be assembled \
                     (Documentation/admin-guide/mm/transhuge.rst)",
                )
                .effect("fewer long pauses")
                .risk("programs that benefit from huge pages must request them")
                .change(format!("echo madvise > {file}"), format!("echo always > {file}"))
                .setting("huge-pages", &Target::Host, "madvise"),
        );
    }
    if let Some(runtime) = notes.ask(view.read("sched-rt-runtime", &Target::Host)) {
        let isolated = view.system.isolated_cpus();
        notes.fact(format!(
            "real-time threads may run {runtime} us of each second; isolated CPUs: {}",
            if isolated.is_empty() { "none".to_owned() } else { format!("{isolated:?}") }
        ));
    }
}
