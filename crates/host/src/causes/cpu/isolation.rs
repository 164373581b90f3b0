//! Other work on the application's CPU: the scheduler's, the timer tick, RCU callbacks, irqbalance.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::tune::{Profile, list_to_cpus};

pub(super) const CAUSE: Cause = Cause {
    title: "Other work runs on the application's CPU",
    symptom: "pauses of milliseconds at random on a program that polls or is pinned",
    evidence: "`/sys/devices/system/cpu/isolated`, nohz_full, rcu_nocbs of /proc/cmdline, irqbalance (judged for the profile latency with --app-cpu)",
    remedy: "boot with isolcpus, nohz_full and rcu_nocbs for that CPU; ban it in irqbalance",
    undo: "boot without them",
    references: &[
        "Documentation/admin-guide/kernel-parameters.txt",
        "Documentation/timers/no_hz.rst",
    ],
    ..Cause::new("isolation", check)
};

const CMDLINE: &str = "/proc/cmdline";

/// CPUs that the kernel's command line keeps free of one kind of work.
struct Kept {
    isolated: Vec<usize>,
    without_tick: Vec<usize>,
    without_callbacks: Vec<usize>,
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(app) = view.app_cpu.filter(|_| view.is_for(Profile::Latency)) else { return };
    let cmdline = match view.system.read_host("proc/cmdline") {
        Ok(text) => text,
        Err(error) => return notes.unseen(format!("cannot read {CMDLINE}: {error}")),
    };
    let kept = Kept::of(view, &cmdline);
    if !kept.isolated.contains(&app) {
        not_isolated(app, &kept.isolated, notes);
    } else if !kept.without_tick.contains(&app) {
        ticking(app, &cmdline, notes);
    } else if !kept.without_callbacks.contains(&app) {
        called_back(app, &cmdline, notes);
    }
    let is_left_alone = kept.isolated.contains(&app) || kept.without_tick.contains(&app);
    if let Some(process) = view.irqbalance().filter(|_| !is_left_alone) {
        balanced(app, &process, notes);
    }
}

impl Kept {
    fn of(view: &Evidence, cmdline: &str) -> Self {
        let without_tick = {
            let text =
                view.system.read_host("sys/devices/system/cpu/nohz_full").unwrap_or_default();
            list_to_cpus(&text).unwrap_or_default()
        };
        // CPUs without the tick never run RCU callbacks (Documentation/timers/no_hz.rst).
        let mut without_callbacks = without_tick.clone();
        without_callbacks.extend(offloaded(cmdline, &view.system.online_cpus()));
        Kept { isolated: view.system.isolated_cpus(), without_tick, without_callbacks }
    }
}

/// CPUs of `rcu_nocbs=LIST`; `rcu_nocbs` alone and `rcu_nocbs=all` are all of them.
fn offloaded(cmdline: &str, online: &[usize]) -> Vec<usize> {
    let options = cmdline.split_ascii_whitespace();
    let mut lists = options.rev().filter_map(|option| match option.strip_prefix("rcu_nocbs")? {
        "" | "=all" => Some(online.to_vec()),
        list => list_to_cpus(list.strip_prefix('=')?),
    });
    lists.next().unwrap_or_default()
}

fn not_isolated(app: usize, isolated: &[usize], notes: &mut Notes<'_>) {
    let list = isolated.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let (severity, what, change, undo) = match isolated.first() {
        None => (
            Severity::Low,
            format!("CPU {app} is not isolated: the scheduler may run other tasks there"),
            format!("boot with isolcpus={app} nohz_full={app}"),
            "boot without them".to_owned(),
        ),
        Some(first) => (
            Severity::Medium,
            format!("CPUs {list} are isolated, but the application's CPU {app} is not"),
            format!("run the application on an isolated CPU, e.g. taskset -c {first}"),
            format!("taskset -c {app}"),
        ),
    };
    notes.find(
        finding(severity, what)
            .read("/sys/devices/system/cpu/isolated", if list.is_empty() { "none" } else { &list })
            .because(
                "a task that runs there delays the application by up to a time slice \
                 (Documentation/admin-guide/kernel-parameters.txt, isolcpus)",
            )
            .effect("fewer and shorter pauses")
            .risk("an isolated CPU serves only what is bound to it")
            .change(change, undo),
    );
}

fn ticking(app: usize, cmdline: &str, notes: &mut Notes<'_>) {
    notes.find(
        finding(Severity::Low, format!("the timer tick interrupts CPU {app}"))
            .read("/sys/devices/system/cpu/nohz_full", format!("without CPU {app}"))
            .read(CMDLINE, cmdline)
            .because(
                "an isolated CPU with one task still has a tick, hundreds a second \
                 (Documentation/timers/no_hz.rst)",
            )
            .effect("fewer interruptions of some microseconds")
            .risk("system calls take longer, and one CPU must keep the time")
            .change(format!("boot with nohz_full={app}"), "boot without it"),
    );
}

fn called_back(app: usize, cmdline: &str, notes: &mut Notes<'_>) {
    notes.find(
        finding(Severity::Low, format!("CPU {app} runs callbacks of RCU"))
            .read(CMDLINE, cmdline)
            .because(
                "memory that was freed under RCU is given back where it was freed, in a softirq \
                 (Documentation/admin-guide/kernel-per-CPU-kthreads.rst)",
            )
            .effect("fewer interruptions")
            .risk("other CPUs do that work")
            .change(format!("boot with rcu_nocbs={app}"), "boot without it"),
    );
}

fn balanced(app: usize, process: &str, notes: &mut Notes<'_>) {
    notes.find(
        finding(Severity::Low, format!("irqbalance may move interrupts to CPU {app}"))
            .read("/proc/PID/comm", format!("irqbalance runs (process {process})"))
            .because(
                "it moves interrupts between all CPUs that are neither isolated nor without a tick \
                 (irqbalance(1))",
            )
            .effect("interrupts stay where they were put")
            .risk("load that grows on one CPU is not spread")
            .change(
                format!(
                    "IRQBALANCE_BANNED_CPULIST={app} in /etc/default/irqbalance, and restart it"
                ),
                "remove that line, and restart it",
            ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callbacks_are_offloaded_from_listed_cpus() {
        let offloaded_of_four = |cmdline| offloaded(cmdline, &[0, 1, 2, 3]);
        assert_eq!(offloaded_of_four("quiet rcu_nocbs=1,2-3 ro"), [1, 2, 3]);
        assert_eq!(offloaded_of_four("rcu_nocbs"), [0, 1, 2, 3]);
        assert_eq!(offloaded_of_four("rcu_nocbs=all"), [0, 1, 2, 3]);
        assert!(offloaded_of_four("rcu_nocb_poll quiet").is_empty());
        assert!(offloaded_of_four("rcu_nocbs=x").is_empty());
    }
}
