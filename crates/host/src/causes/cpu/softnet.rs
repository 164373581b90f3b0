//! Softirqs that have more packets than they may process.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "A CPU's backlog is full, or its softirq ends before the queue is empty",
    symptom: "packets are lost or late at peaks, and no card or socket counts them",
    evidence: "`/proc/net/softnet_stat`: column 2 (dropped), 3 (time_squeeze) and 11 (flow_limit), by CPU; \
               net.core.netdev_max_backlog, netdev_budget, netdev_budget_usecs",
    remedy: "drops: more CPUs for the packets (RPS, queues), then netdev_max_backlog; squeezes: \
             netdev_budget_usecs as well as netdev_budget",
    undo: "1000; 300 and 2000 (or the values that were read)",
    counters: &["softnet dropped", "softnet time_squeeze", "softnet flow_limit"],
    reasons: &["CPU_BACKLOG"],
    references: &[
        "Documentation/admin-guide/sysctl/net.rst (netdev_budget_usecs)",
        "net/core/net-procfs.c, softnet_seq_show",
        "https://github.com/netdata/netdata/issues/1076",
    ],
    is_of_forwarding: true,
    ..Cause::new("softnet", check)
};

/// Squeezes a second that are normal, and from which they cost.
const FEW_PER_S: f64 = 10.0;
const MANY_PER_S: f64 = 100.0;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let dropped = window.sum(&["softnet dropped"]);
    let squeezed = window.sum(&["softnet time_squeeze"]);
    let number = |name: &str| super::host_number(view, &format!("net/core/{name}"));
    // Those of the past are the machine's, and not of one of its namespaces.
    if dropped.now > 0 || (dropped.total > 0 && !view.system.is_child_netns()) {
        notes.find(backlog(window, dropped, number("netdev_max_backlog").unwrap_or(1000)));
    }
    let limited = window.sum(&["softnet flow_limit"]);
    if limited.now > 0 {
        notes.find(flow_limit(limited));
    }
    if squeezed.per_second() > FEW_PER_S {
        let limits = [number("netdev_budget"), number("netdev_budget_usecs")];
        notes.find(squeezes(window, squeezed, limits));
    }
    notes.fact(format!(
        "softirqs since boot: {} drops, {} runs cut short, over all CPUs of the machine",
        dropped.total, squeezed.total
    ));
}

/// The CPU whose counter grew most, with it.
fn busiest(window: &Window, counter: &str) -> (String, Losses) {
    let cpus = window.of_prefix("softnet cpu").filter_map(|(name, count)| {
        let (cpu, of) = name.split_once(' ')?;
        (of == counter).then(|| (cpu.to_owned(), count))
    });
    let most = cpus.max_by_key(|(_, count)| (count.now, count.total));
    most.unwrap_or_else(|| ("0".to_owned(), window.losses(0, 0)))
}

fn backlog(window: &Window, dropped: Losses, limit: u64) -> Finding {
    let (cpu, own) = busiest(window, "dropped");
    let sysctl = "sysctl -w net.core.netdev_max_backlog";
    let longer = (limit * 10).max(10_000);
    finding(
        dropped.severity(),
        format!(
            "{}, most of them at CPU {cpu}: more than {limit} wait for its softirq",
            dropped.sentence("packets were dropped before they reached the stack")
        ),
    )
    .counted(dropped, "packets")
    .read(format!("/proc/net/softnet_stat: dropped, CPU {cpu}"), own.evidence())
    .read("/proc/net/softnet_stat: dropped, all CPUs", dropped.evidence())
    .read("/proc/sys/net/core/netdev_max_backlog", limit.to_string())
    .because(
        "packets of veth, tunnels, loopback and RPS wait in a queue of their CPU, which has a limit \
         (Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog)",
    )
    .effect("bursts wait instead of being dropped")
    .risk("a longer queue adds latency, and a CPU that is overloaded still drops: spread its packets first")
    .change(format!("{sysctl}={longer}   (host-only)"), format!("{sysctl}={limit}"))
}

fn flow_limit(limited: Losses) -> Finding {
    finding(
        limited.severity(),
        limited.sentence("packets of the largest flow were dropped (flow limit)"),
    )
    .counted(limited, "packets")
    .read("/proc/net/softnet_stat: flow_limit_count", limited.evidence())
    .because(
        "while a backlog is half full, the flow with most of its packets loses them \
             (Documentation/networking/scaling.rst, RPS flow limit)",
    )
    .effect("the large flow keeps its packets")
    .risk("small flows lose packets instead when the backlog is full")
    .change(
        "sysctl -w net.core.flow_limit_cpu_bitmap=0   (host-only)",
        "sysctl -w net.core.flow_limit_cpu_bitmap with the old mask",
    )
}

/// - `limits`: packets and microseconds of a run.
fn squeezes(window: &Window, squeezed: Losses, limits: [Option<u64>; 2]) -> Finding {
    let (cpu, own) = busiest(window, "time_squeeze");
    let processed = window.sum(&[&format!("softnet cpu{cpu} processed")]);
    let [budget, usecs] = [limits[0].unwrap_or(300), limits[1].unwrap_or(2000)];
    // A run that ends by its budget has processed that many.
    let is_by_time = processed.now < own.now.saturating_mul(budget);
    let each = processed.now / own.now.max(1);
    let (binding, name, now, larger) = if is_by_time {
        (
            "the time limit (netdev_budget_usecs) binds",
            "netdev_budget_usecs",
            usecs,
            usecs.max(2000) * 4,
        )
    } else {
        ("the limit of packets (netdev_budget) binds", "netdev_budget", budget, budget * 2)
    };
    let severity =
        if squeezed.per_second() > MANY_PER_S { Severity::Medium } else { Severity::Low };
    finding(
        severity,
        format!(
            "softirq runs end before their work is done, {:.0} times a second, most at CPU {cpu}: {binding}",
            squeezed.per_second()
        ),
    )
    .seen(squeezed.confidence())
    .costs(format!("{:.0} waits for the next run a second", squeezed.per_second()))
    .read(format!("/proc/net/softnet_stat: time_squeeze, CPU {cpu}"), own.evidence())
    .read(format!("/proc/net/softnet_stat: processed, CPU {cpu}"), format!("at most {each} packets a run"))
    .read("/proc/sys/net/core/netdev_budget and netdev_budget_usecs", format!("{budget}, {usecs}"))
    .because(
        "a run of the receive softirq ends after netdev_budget packets or netdev_budget_usecs, whichever is \
         first; a larger budget alone changes nothing while the time binds \
         (Documentation/admin-guide/sysctl/net.rst)",
    )
    .effect("more packets a run, and fewer waits for ksoftirqd")
    .risk("other work of that CPU waits longer")
    .change(
        format!("sysctl -w net.core.{name}={larger}   (host-only)"),
        format!("sysctl -w net.core.{name}={now}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_that_binds_follows_from_packets_a_run() {
        let judged = |processed| {
            let window = Window::with_counters(&[
                ("softnet time_squeeze", 0, 200),
                ("softnet cpu3 time_squeeze", 0, 200),
                ("softnet cpu3 processed", 0, processed),
                ("softnet cpu0 time_squeeze", 5, 5),
            ]);
            squeezes(&window, window.sum(&["softnet time_squeeze"]), [Some(300), Some(2000)])
        };
        let time = judged(20_000);
        assert!(time.what.contains("CPU 3: the time limit"), "{}", time.what);
        assert!(time.change.contains("netdev_budget_usecs=8000"), "{}", time.change);
        assert!(time.undo.contains("netdev_budget_usecs=2000"), "{}", time.undo);
        assert!(judged(80_000).change.contains("netdev_budget=600"));
        assert_eq!(time.severity, Severity::Medium);
    }

    #[test]
    fn drops_name_the_cpu_and_the_limit() {
        let window = Window::with_counters(&[
            ("softnet dropped", 10, 60),
            ("softnet cpu1 dropped", 10, 60),
            ("softnet cpu0 dropped", 0, 0),
        ]);
        let found = backlog(&window, window.sum(&["softnet dropped"]), 1000);
        assert_eq!(found.severity, Severity::High);
        assert!(
            found.what.contains("50 packets") && found.what.contains("at CPU 1"),
            "{}",
            found.what
        );
        assert!(found.change.contains("netdev_max_backlog=10000"), "{}", found.change);
    }
}
