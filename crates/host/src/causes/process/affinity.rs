//! A receiver that the scheduler may move, and the line of facts on the program.

use super::{list, percent, receives};
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::causes::{Cause, CauseSubject};
use crate::program::{Program, policy_name};

pub(super) const CAUSE: Cause = Cause {
    title: "a receiving program is not bound to a CPU",
    symptom: "latency jumps at times, and differs from run to run",
    evidence: "`/proc/PID/task/TID/status` Cpus_allowed_list; `/sys/devices/system/cpu/isolated`",
    remedy: "`taskset -c -p CPU TID`, or the program binds its thread (sched_setaffinity(2))",
    undo: "`taskset -c -p LIST TID` with the earlier list",
    references: &[
        "sched_setaffinity(2)",
        "Documentation/admin-guide/kernel-parameters.txt, isolcpus",
    ],
    subject: CauseSubject::Program,
    ..Cause::new("not-pinned", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    notes.fact(facts(program));
    let (id, thread, _) = program.main_thread();
    let online = view.system.online_cpus();
    if thread.allowed.len() < 2 || online.len() < 2 || !receives(program) {
        return;
    }
    let isolated = view.system.isolated_cpus();
    let to = isolated.first().copied().unwrap_or(thread.cpu);
    let allowed = list(&thread.allowed);
    let mut found = finding(
        Severity::Low,
        format!(
            "{} is not bound to a CPU: the scheduler may move it between CPUs {allowed}",
            program.title()
        ),
    )
    .read(format!("/proc/{}/task/{id}/status: Cpus_allowed_list", program.now.pid), &allowed)
    .read(format!("/proc/{}/task/{id}/stat: processor", program.now.pid), thread.cpu.to_string());
    if !isolated.is_empty() {
        found = found.read("/sys/devices/system/cpu/isolated", list(&isolated));
    }
    notes.find(
        found
            .because(
                "a thread that moves finds cold caches, and its packets are handled on another CPU than before \
                 (sched_setaffinity(2))",
            )
            .effect("fewer and shorter pauses")
            .risk("it waits for that CPU while others are idle: keep other work away from it")
            .change(format!("taskset -c -p {to} {id}"), format!("taskset -c -p {allowed} {id}")),
    );
}

/// One line on the program.
fn facts(program: &Program) -> String {
    let (_, thread, grown) = program.main_thread();
    let mut parts = vec![match thread.allowed.as_slice() {
        [only] => format!("bound to CPU {only}"),
        several => format!("CPUs {}, now {}", list(several), thread.cpu),
    }];
    parts.push(match thread.priority {
        0 => format!("{} nice {}", policy_name(thread.policy), thread.nice),
        priority => format!("{} {priority}", policy_name(thread.policy)),
    });
    parts.push(match program.now.locked_bytes {
        0 => "memory not locked".to_owned(),
        bytes => format!("{} KiB locked", bytes / 1024),
    });
    parts.push(format!(
        "ran {}, waited {} for its CPU",
        percent(program.share(grown.scheduled.run_ns)),
        percent(program.share(grown.scheduled.wait_ns))
    ));
    if let Some(place) = program.seen.usual_place(program.main_thread().0) {
        parts.push(format!("sleeps in {place}"));
    }
    let mut rates = Vec::new();
    if let Ok(calls) = &program.calls {
        rates.push((calls.datagram_count, "datagrams received"));
        rates.push((calls.receive_count + calls.empty_count, "receive calls"));
        let written = calls.writes.values().map(|writes| writes.count).sum();
        rates.push((written, "writes to files, pipes and terminals"));
        rates.push((calls.count, "system calls"));
    }
    rates.push((grown.voluntary_switches, "times asleep"));
    rates.push((grown.forced_switches, "times preempted"));
    rates.push((grown.minor_faults + grown.major_faults, "page faults"));
    let rates =
        rates.iter().map(|(count, what)| format!("{:.0} {what}", program.per_second(*count)));
    parts.push(format!("a second: {}", rates.collect::<Vec<_>>().join(", ")));
    if let (Some(open), limit) = (&program.now.descriptors, program.now.descriptor_limit) {
        let limit = limit.map_or("no limit".to_owned(), |limit| limit.to_string());
        parts.push(format!("{} descriptors of {limit}", open.len()));
    }
    format!("{}: {}", program.title(), parts.join("; "))
}
