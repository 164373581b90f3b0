//! A control group whose quota of CPU time is used up.

use super::percent;
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "the quota of a control group stops the threads of a program",
    symptom: "latency in steps of the period, usually 100 ms, although the average use of the CPU is below the limit",
    evidence: "nr_throttled and throttled_usec (version 1: throttled_time) of `cpu.stat` of its control groups; `cpu.max` or `cpu.cfs_quota_us`",
    remedy: "a larger quota or none: `cpu.max`, CPUQuota= of the unit, limits.cpu of the container",
    undo: "the earlier quota",
    references: &["Documentation/scheduler/sched-bwc.rst", "kubernetes/kubernetes#67577"],
    ..Cause::new("cfs", check)
};

/// Share of the window from which the program is stopped more than it may be worth.
const MUCH: f64 = 0.1;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let groups = program.now.groups.iter().zip(&program.throttled);
    // The most affected one: an outer group stops its inner ones.
    let Some((group, (count, time))) =
        groups.filter(|(group, _)| group.throttled_count > 0).max_by_key(|(_, grown)| **grown)
    else {
        return;
    };
    let share = time.as_secs_f64() / program.window.as_secs_f64().max(1e-9);
    let folder = group.folder.display();
    let title = program.title();
    let (severity, confidence, what) = match count {
        0 if group.quota.is_none() => return,
        0 => (
            Severity::Low,
            Confidence::Before,
            format!(
                "the control group of {title} was stopped {} times by its quota",
                group.throttled_count
            ),
        ),
        // Time is added when the threads run again, for all CPUs.
        _ => (
            if share < MUCH { Severity::Medium } else { Severity::High },
            Confidence::Now,
            format!(
                "the control group of {title} was stopped by its quota in {count} periods of the last second"
            ),
        ),
    };
    let (file, quota) = group.quota.clone().unwrap_or(("cpu.max", "unknown".to_owned()));
    let unlimited = if file == "cpu.max" { "max" } else { "-1" };
    notes.find(
        finding(severity, what)
            .seen(confidence)
            .costs(format!("{} ms a second, summed over CPUs", (program.per_second(time.as_micros() as u64) / 1e3).round()))
            .read(format!("{folder}/cpu.stat: nr_throttled"), format!("{count} more, {} in all", group.throttled_count))
            .read(format!("{folder}/cpu.stat: throttled time"), format!("{} of the window", percent(share)))
            .read(format!("{folder}/{file}"), &quota)
            .because(
                "threads that used up the quota of a period stop until the next one begins, whatever waits for them \
                 (Documentation/scheduler/sched-bwc.rst)",
            )
            .effect("no pauses of up to a period")
            .risk("the program may take CPU time from others")
            .change(format!("echo {unlimited} > {folder}/{file}"), format!("echo {quota} > {folder}/{file}")),
    );
}
