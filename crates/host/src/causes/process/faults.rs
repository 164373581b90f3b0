//! Page faults while packets come.

use super::receives;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "a program has page faults while it handles packets",
    symptom: "single datagrams are late by milliseconds (from disk), or throughput is lower than that of a program that re-uses its memory",
    evidence: "minor and major faults of `/proc/PID/task/TID/stat`; VmLck of `status`",
    remedy: "mlockall(2) after the memory was touched, LimitMEMLOCK= of the unit; buffers that are used again",
    undo: "munlockall(2)",
    references: &["mlockall(2)", "proc_pid_stat(5)"],
    subject: CauseSubject::Program,
    ..Cause::new("page-faults", check)
};

/// Faults a second below which their cost is small: 0.5 to 2 µs each, 0.2 % of the time.
const FEW_A_SECOND: f64 = 1_000.0;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let (id, _, grown) = program.main_thread();
    let minor = program.per_second(grown.minor_faults);
    let (severity, what) = if grown.major_faults > 0 {
        (
            Severity::Medium,
            format!("{} waited for pages from disk {} times", program.title(), grown.major_faults),
        )
    } else if minor >= FEW_A_SECOND && receives(program) {
        (
            Severity::Low,
            format!(
                "{} touches new memory all the time: {minor:.0} page faults a second",
                program.title()
            ),
        )
    } else {
        return;
    };
    let task = format!("/proc/{}/task/{id}/stat", program.now.pid);
    notes.find(
        finding(severity, what)
            .seen(Confidence::Now)
            .costs(format!("{:.0} faults a second", minor + program.per_second(grown.major_faults)))
            .read(format!("{task}: majflt"), format!("{} more", grown.major_faults))
            .read(format!("{task}: minflt"), format!("{} more", grown.minor_faults))
            .read(
                format!("/proc/{}/status: VmLck", program.now.pid),
                format!("{} KiB", program.now.locked_bytes / 1024),
            )
            .because("a page fault stops the thread until the kernel has found a page (mlockall(2))")
            .effect("fewer pauses")
            .risk("locked memory is not free for others")
            .change(
                "the program touches its buffers before the work begins, uses them again, and calls mlockall(2)",
                "without mlockall(2)",
            ),
    );
}
