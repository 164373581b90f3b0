//! Segments that wait for a program which holds its socket.

use super::connections::{Connection, connections, name};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "A program is preempted while it holds its socket, and the backlog of the socket overflows",
    symptom: "The sender sees timeouts and retransmissions although the network is idle and the receiver's host is \
              up; the reader has little CPU time (quota, low priority, a busy CPU).",
    evidence: "TcpExtTCPBacklogDrop; SK_MEMINFO_BACKLOG and SK_MEMINFO_DROPS of the socket; drop reason \
               SOCKET_BACKLOG; run delay of the reader in /proc/PID/schedstat.",
    remedy: "CPU time for the reader: a CPU of its own, a higher priority or quota; larger receive and send \
             buffers, which the backlog is limited by.",
    undo: "The old priority, quota and buffers.",
    counters: &["TcpExtTCPBacklogDrop"],
    reasons: &["SOCKET_BACKLOG"],
    references: &[
        "net/ipv4/tcp_ipv4.c, tcp_add_backlog",
        "lkml.iu.edu/hypermail/linux/kernel/0611.3/1344",
    ],
    ..Cause::new("locked-reader", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let dropped = window.sum(&["TcpExtTCPBacklogDrop"]);
    if dropped.total == 0 {
        return;
    }
    let open = connections(window);
    let drops = |one: &Connection<'_>| one.after.memory.drop_count;
    let mut held: Vec<&Connection<'_>> =
        open.iter().filter(|one| drops(one) > 0 || one.after.memory.backlog_bytes > 0).collect();
    held.sort_by_key(|one| std::cmp::Reverse((drops(one), one.after.memory.backlog_bytes)));
    let named = held.first().map(|one| name(evidence, one.after));
    let mut found = judge(dropped, named.as_deref());
    for one in held.iter().take(6) {
        let memory = one.after.memory;
        found = found.read(
            format!("sock_diag: SK_MEMINFO of {}", name(evidence, one.after)),
            format!("{} drops, {} bytes in the backlog", memory.drop_count, memory.backlog_bytes),
        );
    }
    notes.find(found);
}

/// - `named`: connection with the most drops.
fn judge(dropped: Losses, named: Option<&str>) -> Finding {
    let what = dropped
        .sentence("segments were dropped because their program held its socket and did not run");
    finding(dropped.severity(), named.map_or(what.clone(), |named| format!("{what}: {named}")))
        .counted(dropped, "segments")
        .read("/proc/net/netstat: TcpExt TCPBacklogDrop", dropped.evidence())
        .because(
            "segments that arrive while a program is inside recv or send wait in the socket's backlog; if the program \
             is preempted there, it fills up to the size of both buffers and the rest is dropped \
             (net/ipv4/tcp_ipv4.c, tcp_add_backlog)",
        )
        .effect("segments are processed when they arrive")
        .risk("the program takes CPU time from others")
        .change(
            "a CPU of its own, a higher priority (`chrt -f -p 10 PID`) or more quota (cpu.max) for the program",
            "`chrt -o -p 0 PID`, the old affinity and cpu.max",
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::Severity;

    #[test]
    fn drops_of_a_backlog_are_counted() {
        let window = std::time::Duration::from_secs(1);
        let found = judge(Losses { now: 4, total: 9, window }, Some("reader (process 7): a to b"));
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.ends_with("reader (process 7): a to b"), "{}", found.what);
        assert_eq!(judge(Losses { now: 0, total: 9, window }, None).severity, Severity::Low);
    }
}
