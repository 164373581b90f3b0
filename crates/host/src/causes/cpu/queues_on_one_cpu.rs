//! An interface with several queues whose frames one CPU handles alone.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, finding};
use crate::tune::{Target, mask_to_cpus};

pub(super) const CAUSE: Cause = Cause {
    title: "One CPU handles the frames of all receive queues",
    symptom: "one CPU is busy in softirqs while the others idle",
    evidence: "received frames by CPU, counted by the observer (`doctor --observe 5s`); /proc/interrupts",
    remedy: "bind the interrupts of the queues to different CPUs (/proc/irq/N/smp_affinity)",
    undo: "write the previous masks back",
    references: &[
        "Documentation/networking/scaling.rst",
        "Documentation/core-api/irq/irq-affinity.rst",
    ],
    is_of_forwarding: true,
    ..Cause::new("queues-on-one-cpu", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    if evidence.system.online_cpus().len() < 2 {
        return;
    }
    for link in evidence.interfaces().filter(|link| link.rx_queue_count > 1) {
        let (Some((received, cpu)), Some(cost)) =
            (evidence.on_one_cpu(link.index), evidence.one_cpu_cost(link.index))
        else {
            continue;
        };
        // One queue, or a mask of one CPU: receive-steering.
        let queues = evidence.system.queues(&link.name, "rx").unwrap_or_default();
        let masks = queues.iter().filter_map(|queue| {
            let target = Target::RxQueue(link.name.clone(), *queue);
            mask_to_cpus(&evidence.read("rps-cpus", &target).ok()?)
        });
        if queues.len() < 2 || masks.into_iter().any(|cpus| cpus.len() == 1) {
            continue;
        }
        notes.find(
            finding(
                evidence.one_cpu_severity(cpu),
                format!("CPU {cpu} handles all frames that {} receives", link.name),
            )
            .seen(Confidence::Now)
            .costs(cost)
            .read(format!("received frames (observer): {}", link.name), received.text())
            .read(format!("receive queues of {}", link.name), queues.len().to_string())
            .because(
                "a frame is handled by the CPU that got its queue's interrupt \
                 (Documentation/networking/scaling.rst)",
            )
            .effect("flows use as many CPUs as there are queues")
            .risk("packets of different flows may overtake each other")
            .change(
                "wirepath tune plan --profile throughput binds each queue's interrupt to a CPU of its own",
                "wirepath tune rollback",
            ),
        );
    }
}
