//! A system call for each datagram.

use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "a program makes a system call for each of many datagrams",
    symptom: "the receiver uses a whole CPU at a packet rate that others handle with half",
    evidence: "system calls of the process (tracepoints sys_enter, sys_exit): datagrams a receive call",
    remedy: "recvmmsg(2), or UDP_GRO for datagrams of one size",
    undo: "the earlier call",
    references: &["recvmmsg(2)", "udp(7), UDP_GRO"],
    subject: CauseSubject::Program,
    ..Cause::new("one-datagram-a-call", check)
};

/// Receive calls a second below which their cost is small: about 0.3 µs each, 0.3 % of the time.
const FEW_A_SECOND: f64 = 10_000.0;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let calls = match &program.calls {
        Ok(calls) => calls,
        Err(why) => return notes.unseen(format!("system calls were not counted: {why}")),
    };
    let rate = program.per_second(calls.receive_count);
    if rate < FEW_A_SECOND || calls.datagram_count > calls.receive_count * 3 / 2 {
        return;
    }
    notes.find(
        finding(
            Severity::Low,
            format!(
                "{} makes a system call for each datagram: {rate:.0} a second",
                program.title()
            ),
        )
        .seen(Confidence::Now)
        .costs(format!("{rate:.0} calls a second"))
        .read(
            "tracepoints sys_enter and sys_exit",
            format!(
                "{} datagrams in {} calls, {} of them recvmmsg",
                calls.datagram_count, calls.receive_count, calls.batch_count
            ),
        )
        .because("each call enters the kernel and takes the socket's lock anew (recvmmsg(2))")
        .effect("less CPU time for each datagram under load")
        .risk("none for latency if the call returns what is there (MSG_WAITFORONE)")
        .change(
            "the program receives with recvmmsg(2), 32 or 64 datagrams a call",
            "the earlier call",
        ),
    );
}
