//! Where interrupts go.

use super::{Notes, Scene, Severity, finding};
use crate::tune::{Profile, Target, cpus_to_mask};

/// Interrupts below this many say nothing.
const FEW: u64 = 100;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    let online = scene.system.online_cpus();
    if online.len() < 2 {
        return;
    }
    let table = scene.system.read_host("proc/interrupts").unwrap_or_default();
    let counts = crate::tune::irq_counts(&table);
    for link in scene.interfaces() {
        let irqs = scene.system.irqs(&link.name);
        let rows: Vec<(u32, &Vec<u64>)> =
            irqs.iter().filter_map(|irq| Some((*irq, counts.get(irq)?))).collect();
        for (irq, row) in &rows {
            spread(scene, notes, &link.name, *irq, row);
        }
        let busy: Vec<usize> = rows
            .iter()
            .filter(|(_, row)| row.iter().sum::<u64>() >= FEW)
            .filter_map(|(_, row)| (0..row.len()).max_by_key(|cpu| row[*cpu]))
            .collect();
        let is_crowded = busy.len() > 1 && busy.iter().all(|cpu| *cpu == busy[0]);
        if is_crowded && !scene.is_for(Profile::Latency) {
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

fn spread(scene: &Scene, notes: &mut Notes<'_>, interface: &str, irq: u32, row: &[u64]) {
    let total: u64 = row.iter().sum();
    if !scene.is_for(Profile::Latency) || total < FEW {
        return;
    }
    let share = |cpu: &usize| row[*cpu] * 10 >= total;
    let cpus: Vec<usize> = (0..row.len()).filter(share).collect();
    let file = format!("/proc/irq/{irq}/smp_affinity");
    let mask = scene.read("irq-affinity", &Target::Irq(irq)).unwrap_or_default();
    let counts = row.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let on_app = scene.app_cpu.filter(|app| cpus.contains(app));
    let what = match (cpus.len(), on_app) {
        (2.., _) => format!("interrupt {irq} of {interface} wanders over {} CPUs", cpus.len()),
        (_, Some(app)) => {
            format!("interrupt {irq} of {interface} arrives on the application's CPU {app}")
        }
        _ => return,
    };
    let online = scene.system.online_cpus();
    let beside = online.iter().find(|cpu| Some(**cpu) != scene.app_cpu).copied().unwrap_or(0);
    let mut found = finding(Severity::Medium, what)
        .read("/proc/interrupts", format!("{irq}: {counts}"))
        .read(&file, &mask);
    if let Some(process) = irqbalance(scene) {
        found = found.read("/proc/PID/comm", format!("irqbalance runs (process {process})"));
    }
    notes.find(
        found
            .because(
                "an interrupt that moves finds cold caches, and one on the application's CPU stops \
                 it; irqbalance moves them (Documentation/core-api/irq/irq-affinity.rst)",
            )
            .effect("less jitter")
            .risk("irqbalance moves it again unless told not to")
            .change(
                format!("echo {} > {file}", cpus_to_mask(&[beside])),
                format!("echo {mask} > {file}"),
            ),
    );
}

/// Process that moves interrupts about, when there is one.
fn irqbalance(scene: &Scene) -> Option<String> {
    let processes = scene.system.list_host("proc").ok()?;
    processes.into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())).find(|pid| {
        scene.system.read_host(&format!("proc/{pid}/comm")).is_ok_and(|comm| comm == "irqbalance")
    })
}
