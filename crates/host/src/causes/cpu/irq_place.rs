//! Interrupts of a card that arrive far from its memory.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::tune::list_to_cpus;

pub(super) const CAUSE: Cause = Cause {
    title: "Interrupts of the card arrive at CPUs of another NUMA node",
    symptom: "throughput on a machine with several sockets is 10 to 20 % lower, or changes after each restart",
    evidence: "`/sys/class/net/IF/device/numa_node` against `/proc/irq/N/effective_affinity_list`; whether \
               irqbalance runs",
    remedy: "write CPUs of the card's node to `/proc/irq/N/smp_affinity_list`, and ban these interrupts in \
             irqbalance",
    undo: "write the old lists",
    references: &[
        "Documentation/core-api/irq/irq-affinity.rst",
        "https://github.com/Irqbalance/irqbalance/issues/50",
    ],
    is_of_forwarding: true,
    ..Cause::new("irq-place", check)
};

/// Interrupts within the window from which one is busy.
const FEW: u64 = 10;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    for link in view.interfaces() {
        // -1: the machine or the device has no node.
        let node = view.system.read_net(&format!("{}/device/numa_node", link.name)).ok();
        let Some(node) = node.and_then(|text| text.parse::<u32>().ok()) else { continue };
        let list = format!("sys/devices/system/node/node{node}/cpulist");
        let Some(near) = view.system.read_host(&list).ok().and_then(|text| list_to_cpus(&text))
        else {
            continue;
        };
        let Some(window) = notes.window(view) else { return };
        let online = view.system.online_cpus();
        // On a machine of one node all CPUs are near.
        if online.iter().all(|cpu| near.contains(cpu)) {
            continue;
        }
        let far: Vec<(u32, String)> = view
            .system
            .irqs(&link.name)
            .into_iter()
            .filter_map(|irq| Some((irq, place(view, irq)?)))
            .filter(|(_, cpus)| {
                list_to_cpus(cpus).is_some_and(|cpus| {
                    !cpus.is_empty() && !cpus.iter().any(|cpu| near.contains(cpu))
                })
            })
            .collect();
        let Some((first, cpus)) = far.first() else { continue };
        let grown =
            |irq: &u32| window.of_prefix(&format!("irq {irq} ")).map(|(_, n)| n.now).sum::<u64>();
        let now: u64 = far.iter().map(|(irq, _)| grown(irq)).sum();
        let (severity, confidence) = match now {
            FEW.. => (Severity::Medium, Confidence::Now),
            _ => (Severity::Low, Confidence::SetUp),
        };
        let near_list = near.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut found = finding(
            severity,
            format!(
                "{} interrupts of {} arrive at CPUs of another NUMA node than {node}, which has its memory: \
                 interrupt {first} at CPU {cpus}",
                far.len(),
                link.name
            ),
        )
        .seen(confidence)
        .read(format!("/sys/class/net/{}/device/numa_node", link.name), node.to_string())
        .read(format!("/{list}"), &near_list)
        .read("/proc/interrupts", format!("{now} more within the window"));
        for (irq, cpus) in far.iter().take(8) {
            found = found.read(format!("/proc/irq/{irq}/effective_affinity_list"), cpus);
        }
        if let Some(process) = view.irqbalance() {
            found = found.read("/proc/PID/comm", format!("irqbalance runs (process {process})"));
        }
        let write = |value: &dyn Fn(&String) -> String| {
            let each = far.iter().take(8).map(|(irq, cpus)| {
                format!("echo {} > /proc/irq/{irq}/smp_affinity_list", value(cpus))
            });
            each.collect::<Vec<_>>().join(" && ")
        };
        notes.find(
            found
                .because(
                    "rings and packets are in the memory of the card's node, and each access from another one \
                     crosses between the sockets (Documentation/core-api/irq/irq-affinity.rst)",
                )
                .effect("packets are processed beside their memory")
                .risk("irqbalance moves them again unless it is configured not to (IRQBALANCE_ARGS --banirq)")
                .change(write(&|_| near_list.clone()), write(&String::clone)),
        );
    }
}

/// CPUs at which an interrupt arrives, as a list.
fn place(view: &Evidence, irq: u32) -> Option<String> {
    ["effective_affinity_list", "smp_affinity_list"]
        .iter()
        .find_map(|file| view.system.read_host(&format!("proc/irq/{irq}/{file}")).ok())
        .filter(|list| !list.is_empty())
}
