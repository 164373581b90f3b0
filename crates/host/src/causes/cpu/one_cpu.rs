//! One CPU that does the work of all packets.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::Link;
use crate::tune::cpus_to_mask;

pub(super) const CAUSE: Cause = Cause {
    title: "All packets are processed by one CPU",
    symptom: "throughput or packet rate ends at what one CPU can do; that CPU is at 100 % in softirqs and the \
              others are idle",
    evidence: "`/proc/net/softnet_stat`: processed, by CPU; softirq time by CPU in `/proc/stat`; \
               `/proc/interrupts`; receive queues and rps_cpus of the interfaces",
    remedy: "more receive queues (ethtool -L, ethtool -X IF equal N), their interrupts at different CPUs, or RPS \
             (rps_cpus)",
    undo: "the old numbers and masks",
    counters: &["softnet processed"],
    references: &[
        "Documentation/networking/scaling.rst",
        "https://github.com/redis/redis/issues/5882",
    ],
    is_of_forwarding: true,
    ..Cause::new("one-cpu", check)
};

/// Packets a second from which the share of a CPU is judged.
const BUSY_PER_S: f64 = 20_000.0;
/// Share of the packets of one CPU, and of its time in softirqs, from which a finding is made, percent.
const SHARE: u64 = 90;
const SOFTIRQ: u64 = 60;
const SATURATED: u64 = 90;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let online = view.system.online_cpus();
    if online.len() < 2 {
        return;
    }
    let Some(window) = notes.window(view) else { return };
    let Some(load) = load(window) else { return };
    // The counters are of the machine: the packets have to be those of the path.
    let received = |link: &&Link| window.link(&link.name, "rx_packets").now;
    let Some(link) = view.interfaces().max_by_key(received) else { return };
    let all: u64 = view.interfaces().map(|link| received(&link)).sum();
    if all * 2 < load.processed {
        return;
    }
    let queues = view.system.queues(&link.name, "rx").unwrap_or_default().len();
    let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", link.name);
    let mask =
        view.system.read_net(&format!("{}/queues/rx-0/rps_cpus", link.name)).unwrap_or_default();
    let set = |mask: &str| view.in_sysfs(&format!("echo {mask} > {file}"));
    let found = judge(&load, online.len(), &link.name, queues);
    notes.find(
        found
            .read(
                format!("/sys/class/net/{}/queues", link.name),
                format!("{queues} receive queues"),
            )
            .read(&file, &mask)
            .change(
                format!(
                    "{}   (or more queues: {}ethtool -L {} combined {})",
                    set(&cpus_to_mask(&online)),
                    view.prefix(),
                    link.name,
                    online.len()
                ),
                set(if mask.is_empty() { "0" } else { &mask }),
            ),
    );
}

/// A CPU that processes nearly all packets.
#[derive(Debug, PartialEq)]
struct Load {
    cpu: String,
    /// Within the window, of that CPU.
    processed: u64,
    per_s: f64,
    /// Percent of all packets, and of the CPU's time.
    share: u64,
    softirq: u64,
}

fn load(window: &Window) -> Option<Load> {
    let processed: Vec<(&str, u64)> = window
        .of_prefix("softnet cpu")
        .filter_map(|(name, count)| Some((name.strip_suffix(" processed")?, count.now)))
        .collect();
    let all: u64 = processed.iter().map(|(_, count)| count).sum();
    let (cpu, most) = processed.into_iter().max_by_key(|(_, count)| *count)?;
    let ticks = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
        .map(|name| window.sum(&[&format!("cpu{cpu} {name}")]).now);
    let softirq = (ticks[5] + ticks[6]) * 100 / ticks.iter().sum::<u64>().max(1);
    let per_s = window.losses(0, most).per_second();
    let share = most * 100 / all.max(1);
    let is_busy = per_s >= BUSY_PER_S && share >= SHARE && softirq >= SOFTIRQ;
    is_busy.then(|| Load { cpu: cpu.to_owned(), processed: most, per_s, share, softirq })
}

fn judge(load: &Load, online: usize, name: &str, queues: usize) -> Finding {
    let severity = if load.softirq >= SATURATED { Severity::High } else { Severity::Medium };
    let others = online - 1;
    finding(
        severity,
        format!(
            "CPU {} processes {} % of all packets ({:.0} a second) and spends {} % of its time in softirqs; \
             {others} other CPUs do the rest: {name} has {queues} receive queue{}",
            load.cpu,
            load.share,
            load.per_s,
            load.softirq,
            if queues == 1 { "" } else { "s" }
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{} % of CPU {}", load.softirq, load.cpu))
    .read(
        format!("/proc/net/softnet_stat: processed, CPU {}", load.cpu),
        format!("{} packets, {} % of all", load.processed, load.share),
    )
    .read(format!("/proc/stat: softirq of cpu{}", load.cpu), format!("{} %", load.softirq))
    .because(
        "packets are processed by the CPU that got the interrupt of their queue, or by those of rps_cpus \
         (Documentation/networking/scaling.rst)",
    )
    .effect("flows use more CPUs; a single flow gains nothing")
    .risk("packets of different flows may overtake each other, and each is handed to another CPU")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(packets: [u64; 2], softirq: u64) -> Option<Load> {
        load(&Window::with_counters(&[
            ("softnet cpu0 processed", 0, packets[0]),
            ("softnet cpu1 processed", 0, packets[1]),
            ("softnet cpu0 dropped", 0, 0),
            ("cpu0 softirq", 0, softirq),
            ("cpu0 idle", 0, 100 - softirq),
            ("cpu1 idle", 0, 100),
        ]))
    }

    #[test]
    fn cpu_that_is_busy_with_nearly_all_packets_is_named() {
        let load = loaded([95_000, 3_000], 93).unwrap();
        assert_eq!((load.cpu.as_str(), load.share, load.softirq), ("0", 96, 93));
        let found = judge(&load, 4, "eth0", 1);
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.contains("has 1 receive queue") && found.what.contains("3 other CPUs"));
        assert_eq!(loaded([95_000, 3_000], 20), None, "it has time");
        assert_eq!(loaded([50_000, 45_000], 93), None, "both work");
        assert_eq!(loaded([5_000, 3], 93), None, "few packets");
    }
}
