//! A write for each datagram: a line that is printed.

use super::{FEW, percent};
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};

pub(super) const CAUSE: Cause = Cause {
    title: "a program writes to a file, pipe or terminal for each datagram",
    symptom: "latency grows with the rate, and a slow terminal or log stops the receiver",
    evidence: "system calls of the process (tracepoints sys_enter, sys_exit): writes by descriptor, and their time; `/proc/PID/fd`",
    remedy: "print less; a buffer of many lines (setvbuf(3)); another thread that writes",
    undo: "the earlier output",
    references: &["setvbuf(3)", "write(2)"],
    subject: CauseSubject::Program,
    ..Cause::new("write-a-datagram", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let calls = match &program.calls {
        Ok(calls) => calls,
        Err(why) => return notes.unseen(format!("system calls were not counted: {why}")),
    };
    let datagrams = calls.datagram_count;
    if datagrams < FEW {
        return;
    }
    for (descriptor, writes) in &calls.writes {
        if writes.count * 2 < datagrams {
            continue;
        }
        let to = program.now.descriptors.as_ref().and_then(|open| open.get(descriptor));
        let to = to.map_or("closed now", String::as_str);
        let us_each = writes.ns as f64 / datagrams as f64 / 1e3;
        notes.find(
            finding(
                Severity::Medium,
                format!(
                    "{} writes to descriptor {descriptor} for each datagram: {:.0} writes a second for {:.0} datagrams",
                    program.title(),
                    program.per_second(writes.count),
                    program.per_second(datagrams)
                ),
            )
            .seen(Confidence::Now)
            .costs(format!("{us_each:.1} µs a datagram, {} of the time", percent(program.share(writes.ns))))
            .read(
                "tracepoints sys_enter and sys_exit",
                format!("{} writes of {} bytes, {datagrams} datagrams", writes.count, writes.bytes),
            )
            .read(format!("/proc/{}/fd/{descriptor}", program.now.pid), to)
            .because(
                "the next datagram waits until the write has returned, and longer if the reader of a pipe or \
                 terminal is slow (write(2))",
            )
            .effect("that time less for each datagram")
            .risk("lines appear later, and the last ones are lost if the program is killed")
            .change(
                "a buffer of many lines (setvbuf(stdout, NULL, _IOFBF, 65536) and no flush), or another thread that \
                 writes",
                "the earlier output",
            ),
        );
    }
}
