//! CPUs at which interrupts arrive.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Notes, Severity, finding};
use crate::tune::{Profile, Target, cpus_to_mask, mask_to_cpus};

pub(super) const CAUSE: Cause = Cause {
    title: "Interrupts move between CPUs, arrive at the application's CPU, or all at one CPU",
    symptom: "jitter of tens of microseconds; one CPU is busy with all queues",
    evidence: "`/proc/interrupts` by CPU, now and since the start; `/proc/irq/N/smp_affinity`; whether irqbalance runs (the first two judged for the profile latency)",
    remedy: "echo MASK > /proc/irq/N/smp_affinity, and ban it in irqbalance",
    undo: "write the old mask",
    references: &["Documentation/core-api/irq/irq-affinity.rst"],
    ..Cause::new("interrupts", check)
};

/// Minimum number of interrupts for a judgement.
const FEW: u64 = 100;
/// Minimum number within the window for a judgement.
const FEW_OF_WINDOW: u64 = 10;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let online = view.system.online_cpus();
    if online.len() < 2 {
        return;
    }
    let Some(window) = notes.window(view) else { return };
    for link in view.interfaces() {
        let irqs = view.system.irqs(&link.name);
        let rows: Vec<(u32, Vec<u64>)> = irqs
            .iter()
            .map(|irq| (*irq, by_cpu(window, *irq, |count| count.total)))
            .filter(|(_, row)| !row.is_empty())
            .collect();
        for (irq, row) in &rows {
            let moment = by_cpu(window, *irq, |count| count.now);
            spread(view, notes, &link.name, *irq, (row, &moment));
        }
        let busy: Vec<usize> = rows
            .iter()
            .filter(|(_, row)| row.iter().sum::<u64>() >= FEW)
            .filter_map(|(_, row)| (0..row.len()).max_by_key(|cpu| row[*cpu]))
            .collect();
        let is_crowded = busy.len() > 1 && busy.iter().all(|cpu| *cpu == busy[0]);
        if is_crowded && !view.is_for(Profile::Latency) {
            notes.find(
                finding(
                    Severity::Low,
                    format!("CPU {} gets all interrupts of {}", busy[0], link.name),
                )
                .read("/proc/interrupts", format!("{} busy interrupts", busy.len()))
                .because(
                    "each queue's work is done where its interrupt arrives \
                         (Documentation/core-api/irq/irq-affinity.rst)",
                )
                .effect("queues use more CPUs")
                .change(
                    "wirepath tune plan --profile throughput plans an interrupt for each CPU",
                    "wirepath tune rollback",
                ),
            );
        }
    }
}

/// Counts of an interrupt, indexed by CPU; empty if it was never raised.
fn by_cpu(window: &Window, irq: u32, count: fn(Losses) -> u64) -> Vec<u64> {
    let mut row = Vec::new();
    for (name, losses) in window.of_prefix(&format!("irq {irq} cpu")) {
        let Ok(cpu) = name.parse::<usize>() else { continue };
        row.resize(row.len().max(cpu + 1), 0);
        row[cpu] = count(losses);
    }
    row
}

/// CPUs with at least a tenth of the interrupts.
fn share(row: &[u64]) -> Vec<usize> {
    let total: u64 = row.iter().sum();
    (0..row.len()).filter(|cpu| row[*cpu] > 0 && row[*cpu] * 10 >= total).collect()
}

/// CPUs at which an interrupt arrives, from its counts since boot, those of the window, and the CPUs
/// that it may use; more than one if it moves.
///
/// Counts since boot describe the past: an interrupt that is now bound to one CPU, without a process
/// that moves it, stays there.
fn places(since_start: &[u64], moment: &[u64], may: &[usize], is_moved_about: bool) -> Vec<usize> {
    let now = if moment.iter().sum::<u64>() >= FEW_OF_WINDOW { share(moment) } else { Vec::new() };
    let past = share(since_start);
    match (now.len(), may) {
        (2.., _) => now,
        _ if past.len() > 1 && (is_moved_about || may.len() != 1) => past,
        (1, _) => now,
        (_, [only]) => vec![*only],
        _ => past,
    }
}

fn counts_text(row: &[u64]) -> String {
    row.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn spread(
    view: &Evidence,
    notes: &mut Notes<'_>,
    interface: &str,
    irq: u32,
    (row, moment): (&[u64], &[u64]),
) {
    let total: u64 = row.iter().sum();
    if !view.is_for(Profile::Latency) || total < FEW {
        return;
    }
    let file = format!("/proc/irq/{irq}/smp_affinity");
    let mask = view.read("irq-affinity", &Target::Irq(irq)).unwrap_or_default();
    let balancer = view.irqbalance();
    let may = mask_to_cpus(&mask).unwrap_or_default();
    let cpus = places(row, moment, &may, balancer.is_some());
    let on_app = view.app_cpu.filter(|app| cpus.contains(app));
    let what = match (cpus.len(), on_app) {
        (2.., _) => format!("interrupt {irq} of {interface} moves between {} CPUs", cpus.len()),
        (_, Some(app)) => {
            format!("interrupt {irq} of {interface} arrives on the application's CPU {app}")
        }
        _ => return,
    };
    let online = view.system.online_cpus();
    let beside = online.iter().find(|cpu| Some(**cpu) != view.app_cpu).copied().unwrap_or(0);
    let mut found = finding(Severity::Medium, what)
        .read("/proc/interrupts", format!("{irq}: {}", counts_text(row)))
        .read("/proc/interrupts, growth within the window", counts_text(moment))
        .read(&file, &mask);
    if let Some(process) = balancer {
        found = found.read("/proc/PID/comm", format!("irqbalance runs (process {process})"));
    }
    notes.find(
        found
            .because(
                "an interrupt that moves finds cold caches, and one on the application's CPU preempts \
                 it; irqbalance moves interrupts (Documentation/core-api/irq/irq-affinity.rst)",
            )
            .effect("less jitter")
            .risk(
                "irqbalance moves it again unless it is configured not to; a program that sleeps until packets come \
                 may be faster on the CPU of their interrupt: `wirepath tune prove` measures it",
            )
            .change(
                format!("echo {} > {file}", cpus_to_mask(&[beside])),
                format!("echo {mask} > {file}"),
            )
            .setting("irq-affinity", &Target::Irq(irq), cpus_to_mask(&[beside])),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_moves_only_while_it_can_be_moved() {
        // On both CPUs within the window.
        assert_eq!(places(&[500, 500], &[20, 20], &[1], false), [0, 1]);
        // On both since boot: bound to one now, it stays there; otherwise it may move again.
        assert_eq!(places(&[500, 500], &[0, 40], &[1], false), [1]);
        assert_eq!(places(&[500, 500], &[0, 0], &[1], false), [1]);
        assert_eq!(places(&[500, 500], &[0, 40], &[0, 1], false), [0, 1]);
        assert_eq!(places(&[500, 500], &[0, 40], &[1], true), [0, 1]);
        // It may use both, and does not.
        assert_eq!(places(&[500, 3], &[40, 0], &[0, 1], false), [0]);
    }
}
