//! A receiver that sleeps until each datagram comes.

use super::{percent, receives};
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "a program sleeps until each datagram comes, and is woken for it",
    symptom: "the first datagram after a pause is late by some or many microseconds",
    evidence: "`/proc/PID/task/TID/syscall`; voluntary_ctxt_switches of `status`; system calls of the process",
    remedy: "SO_BUSY_POLL or `net.core.busy_read`, or receive calls that do not wait (MSG_DONTWAIT) on a CPU of its own",
    undo: "the earlier call, and busy_read 0",
    references: &["socket(7), SO_BUSY_POLL", "Documentation/networking/napi.rst, busy polling"],
    subject: CauseSubject::Program,
    ..Cause::new("blocking-receive", check)
};

/// Fewer looks at a thread tell nothing.
const FEW_LOOKS: u64 = 10;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    if !receives(program) {
        return;
    }
    let (id, _, grown) = program.main_thread();
    let (looks, waiting) = program.seen.waiting(id);
    if looks < FEW_LOOKS {
        return notes
            .unseen("the system call in which the program waits may not be seen; run as root");
    }
    let datagrams = program.datagram_count();
    let polls = program.calls.as_ref().is_ok_and(|calls| calls.empty_count > calls.receive_count);
    // A reader that finds many datagrams at each wake-up pays little for it.
    let is_woken_often = datagrams == 0 || grown.voluntary_switches * 4 >= datagrams;
    let place = program.seen.usual_place(id).unwrap_or_default();
    if waiting * 2 < looks || polls || !is_woken_often {
        return;
    }
    let wakeups = program.per_second(grown.voluntary_switches);
    notes.find(
        finding(
            Severity::Low,
            format!("{} sleeps in {place} until a datagram comes: {wakeups:.0} wake-ups a second", program.title()),
        )
        .seen(Confidence::Now)
        .costs(format!("{wakeups:.0} wake-ups a second"))
        .read(
            format!("/proc/{}/task/{id}/syscall", program.now.pid),
            format!("waits for packets in {waiting} of {looks} looks, most often in {place}"),
        )
        .read(
            format!("/proc/{}/task/{id}/status: voluntary_ctxt_switches", program.now.pid),
            format!("{} within the window, for {datagrams} datagrams", grown.voluntary_switches),
        )
        .read("/proc/PID/task/TID/schedstat: time running", percent(program.share(grown.scheduled.run_ns)))
        .because(
            "a wake-up takes microseconds, and tens of them from an idle state of the CPU; a program that polls has \
             none (Documentation/networking/napi.rst, busy polling)",
        )
        .effect("lower latency of single datagrams")
        .risk("a polling program uses its CPU all the time")
        .change(
            "SO_BUSY_POLL of the socket, or receive calls with MSG_DONTWAIT in a loop on a CPU of its own; \
             `wirepath compare OLD NEW` measures both",
            "the earlier call",
        ),
    );
}
