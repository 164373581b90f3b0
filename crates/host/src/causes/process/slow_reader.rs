//! A reader that is slower than its packets.

use super::percent;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "a program reads slower than its datagrams come",
    symptom: "datagrams are lost, and a larger receive buffer only delays the loss",
    evidence: "drops of its sockets grow in `/proc/PID/net/udp` while its thread runs or writes nearly all the time (`schedstat`, `syscall`)",
    remedy: "less work for each datagram, several datagrams a call, more threads or sockets (SO_REUSEPORT)",
    undo: "the earlier program",
    references: &["socket(7), SO_RCVBUF", "netdata/netdata#4086"],
    subject: CauseSubject::Program,
    ..Cause::new("slow-reader", check)
};

/// Share of the window from which a thread has no time left.
const BUSY: f64 = 0.8;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let dropped: u64 = program.seen.sockets.values().map(|socket| socket.dropped_count()).sum();
    if dropped == 0 {
        return;
    }
    let (id, _, grown) = program.main_thread();
    let (run, wait) =
        (program.share(grown.scheduled.run_ns), program.share(grown.scheduled.wait_ns));
    let places = program.seen.places.get(&id);
    let looks: u64 = places.into_iter().flat_map(|places| places.values()).sum();
    let writing = places.and_then(|places| places.get("write")).copied().unwrap_or(0);
    let is_stuck = writing * 2 > looks;
    if run + wait < BUSY && !is_stuck {
        return;
    }
    let read = match &program.calls {
        Ok(calls) => {
            format!("it read {:.0} datagrams a second", program.per_second(calls.datagram_count))
        }
        Err(_) => "it reads as fast as it can".to_owned(),
    };
    let rate = program.per_second(dropped);
    let busy = if is_stuck { "waits for its output" } else { "has no time left" };
    notes.find(
        finding(
            Severity::High,
            format!("{} {busy}: {read}, and {rate:.0} more were dropped", program.title()),
        )
        .seen(Confidence::Now)
        .costs(format!("{rate:.0} datagrams a second"))
        .read(format!("/proc/{}/net/udp: drops", program.now.pid), format!("{dropped} within the window"))
        .read(
            format!("/proc/{}/task/{id}/schedstat", program.now.pid),
            format!("ran {}, waited {} for its CPU", percent(run), percent(wait)),
        )
        .read(
            format!("/proc/{}/task/{id}/syscall", program.now.pid),
            format!("in write in {writing} of {looks} looks"),
        )
        .because(
            "a buffer holds what comes during a pause; what comes faster than it is read fills any buffer \
             (socket(7), SO_RCVBUF)",
        )
        .effect("no loss at this rate")
        .risk("none known")
        .change(
            "less work for each datagram (writes, locks), recvmmsg(2), or more readers (SO_REUSEPORT); a larger \
             buffer will not help",
            "the earlier program",
        ),
    );
}
