//! The CPU that handles packets, and that of the program.

use super::receives;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "packets are handled on the CPU where a program polls",
    symptom: "a polling receiver loses time to the softirqs of its own packets and of others",
    evidence: "first column of `/proc/net/softnet_stat` by CPU; Cpus_allowed_list of the thread; `/proc/interrupts`",
    remedy: "another CPU for the interrupts (`/proc/irq/N/smp_affinity_list`) and rps_cpus; the same CPU suits a program that sleeps until packets come",
    undo: "the earlier lists",
    references: &[
        "Documentation/networking/scaling.rst",
        "Documentation/core-api/irq/irq-affinity.rst",
    ],
    subject: CauseSubject::Program,
    ..Cause::new("packets-on-its-cpu", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let Some(cpu) = program.pinned_to().filter(|_| receives(program)) else { return };
    let Some(window) = notes.window(view) else { return };
    let (own, all) = handled(window, cpu);
    let (looks, waiting) = program.seen.waiting(program.main_thread().0);
    // Both windows differ a little.
    let has_its_packets = own * 2 >= program.datagram_count();
    if view.system.online_cpus().len() < 2 || own * 2 < all || !has_its_packets {
        return;
    }
    let title = program.title();
    if looks == 0 || waiting * 2 >= looks {
        return notes.fact(format!(
            "{title} sleeps on CPU {cpu}, which handles {own} of {all} packets: no other CPU is woken for it, and \
             the caches are warm; on another CPU its packets would not interrupt it. `wirepath tune prove` measures both"
        ));
    }
    notes.find(
        finding(
            Severity::Low,
            format!("{title} polls on CPU {cpu}, which handles {own} of {all} packets: they interrupt it"),
        )
        .seen(Confidence::Now)
        .costs(format!("{:.0} packets a second", program.per_second(own)))
        .read("/proc/net/softnet_stat: processed", format!("{own} of {all} packets of the machine on CPU {cpu}"))
        .read(
            format!("/proc/{}/task/TID/syscall", program.now.pid),
            format!("waits for packets in {waiting} of {looks} looks"),
        )
        .because(
            "the softirq of a packet runs on the CPU of its interrupt, in place of the program that is there \
             (Documentation/networking/scaling.rst)",
        )
        .effect("the program polls without a pause")
        .risk("packets come from another CPU's cache; a program that sleeps until they come is better off on theirs")
        .change(
            format!("interrupts and rps_cpus on another CPU than {cpu}: `wirepath tune plan --profile latency --app-cpu {cpu}`"),
            "wirepath tune rollback",
        ),
    );
}

/// Packets that a CPU handled in the window, and those of all CPUs.
fn handled(window: &Window, cpu: usize) -> (u64, u64) {
    let count = |name: &str| window.sum(&[name]).now;
    (count(&format!("softnet cpu{cpu} processed")), count("softnet processed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_by_cpu() {
        let window = Window::with_counters(&[
            ("softnet processed", 100, 160),
            ("softnet cpu0 processed", 70, 80),
            ("softnet cpu1 processed", 30, 80),
        ]);
        assert_eq!((handled(&window, 1), handled(&window, 7)), ((50, 60), (0, 60)));
    }
}
