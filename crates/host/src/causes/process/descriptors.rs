//! No descriptor is left.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "a program has as many descriptors open as it may",
    symptom: "clients hang instead of being refused; the server uses a whole CPU and accepts nothing",
    evidence: "`/proc/PID/fd` against Max open files of `/proc/PID/limits`; accept(2) that fails with EMFILE",
    remedy: "`prlimit --pid PID --nofile=65536`, LimitNOFILE= of the unit; find the leak: CLOSE-WAIT in `ss -tanp`",
    undo: "`prlimit --pid PID --nofile=N` with the earlier limit",
    references: &[
        "accept(2)",
        "getrlimit(2), RLIMIT_NOFILE",
        "esnet/iperf#493",
        "yesodweb/wai#928",
    ],
    ..Cause::new("emfile", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(program) = &view.program else { return };
    let now = &program.now;
    let Some(open) = now.descriptors.as_ref().map(|open| open.len() as u64) else {
        return notes.unseen("descriptors of the program may not be seen; run as root");
    };
    let failed = program.calls.as_ref().map_or(0, |calls| calls.no_descriptor_count);
    let Some(limit) = now.descriptor_limit.filter(|limit| failed > 0 || open * 10 >= limit * 9)
    else {
        return;
    };
    let is_full = failed > 0 || open >= limit;
    let (severity, confidence) = if is_full {
        (Severity::High, Confidence::Now)
    } else {
        (Severity::Low, Confidence::SetUp)
    };
    let mut found = finding(
        severity,
        format!("{} (process {}) has {open} of {limit} descriptors open", now.name, now.pid),
    )
    .seen(confidence)
    .read(format!("/proc/{}/fd", now.pid), format!("{open} descriptors"))
    .read(format!("/proc/{}/limits: Max open files", now.pid), limit.to_string());
    if failed > 0 {
        let rate = program.per_second(failed);
        found = found
            .costs(format!("{rate:.0} failed calls a second"))
            .read("accept(2): EMFILE", format!("{failed} within the window"));
    }
    let sockets = now.sockets().len();
    notes.find(
        found
            .read(format!("/proc/{}/fd: sockets", now.pid), sockets.to_string())
            .because(
                "accept(2) fails, and finished connections wait in the queue of the server until that is full, too \
                 (getrlimit(2), RLIMIT_NOFILE)",
            )
            .effect("connections are accepted")
            .risk("a leak of descriptors takes longer to show")
            .change(
                format!("prlimit --pid {} --nofile={}", now.pid, (limit * 16).max(65_536)),
                format!("prlimit --pid {} --nofile={limit}", now.pid),
            ),
    );
}
