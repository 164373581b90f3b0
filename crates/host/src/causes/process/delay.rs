//! A program that is ready and waits for a CPU.

use super::{list, percent};
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};
use crate::program::policy_name;

pub(super) const CAUSE: Cause = Cause {
    title: "a program is ready to run and waits for its CPU",
    symptom: "latency jumps by milliseconds while other programs run; TCP segments wait in the backlog of a socket that its preempted reader holds",
    evidence: "`/proc/PID/task/TID/schedstat` second number; nonvoluntary_ctxt_switches of `status`; class and nice value of `stat`; `/proc/PID/autogroup`",
    remedy: "a CPU without other work, a real-time class (`chrt -f -p 50 TID`), or a higher weight of its control group",
    undo: "`chrt -o -p 0 TID`",
    references: &[
        "sched(7)",
        "Documentation/scheduler/sched-stats.rst",
        "lkml.iu.edu/hypermail/linux/kernel/0611.3/1344",
    ],
    subject: CauseSubject::Program,
    ..Cause::new("run-delay", check)
};

/// Shares of the window from which waiting counts, and from which it is more than an occasional cost.
const FEW: f64 = 0.01;
const MUCH: f64 = 0.05;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let (id, thread, grown) = program.main_thread();
    let share = program.share(grown.scheduled.wait_ns);
    // Time without a quota left is waiting, too.
    let is_throttled = program.throttled.iter().any(|(count, _)| *count > 0);
    if share < FEW || is_throttled {
        return;
    }
    let severity = if share < MUCH { Severity::Low } else { Severity::Medium };
    let task = format!("/proc/{}/task/{id}", program.now.pid);
    let mut found = finding(
        severity,
        format!(
            "{} was ready and waited for its CPU {} of the time",
            program.title(),
            percent(share)
        ),
    )
    .seen(Confidence::Now)
    .costs(format!("{:.1} ms a second", program.per_second(grown.scheduled.wait_ns) / 1e6))
    .read(
        format!("{task}/schedstat"),
        format!("{:.1} ms of waiting", grown.scheduled.wait_ns as f64 / 1e6),
    )
    .read(
        format!("{task}/status: nonvoluntary_ctxt_switches"),
        format!("{} more", grown.forced_switches),
    )
    .read(
        format!("{task}/stat"),
        format!(
            "{}, nice {}, priority {}",
            policy_name(thread.policy),
            thread.nice,
            thread.priority
        ),
    )
    .read(format!("{task}/status: Cpus_allowed_list"), list(&thread.allowed));
    if let (Some(nice), true) = (program.now.autogroup_nice, thread.nice != 0) {
        found = found.read(
            format!("/proc/{}/autogroup", program.now.pid),
            format!("nice {nice}: the program's own nice value counts within its session only (sched(7))"),
        );
    }
    let is_real_time = thread.priority > 0;
    let elsewhere = format!("a CPU without other work: taskset -c -p CPU {id}");
    let back = format!("taskset -c -p {} {id}", list(&thread.allowed));
    notes.find(
        found
            .because(
                "another task had the CPU; a packet that comes meanwhile is read when the program has it again \
                 (sched(7))",
            )
            .effect("the program runs as soon as it can")
            .risk("a real-time program that never sleeps takes its CPU from all others")
            .change(
                if is_real_time { elsewhere.clone() } else { format!("chrt -f -p 50 {id}, or {elsewhere}") },
                if is_real_time { back.clone() } else { format!("chrt -o -p 0 {id}; {back}") },
            ),
    );
}
