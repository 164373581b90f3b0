//! Receive queues that the kernel compacts.

use super::connections::{listed, name, size_text};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, Severity, finding};
use crate::net::{TcpSocket, TcpState};

pub(super) const CAUSE: Cause = Cause {
    title: "The kernel compacts large receive queues of programs that read too slowly, and drops out of them",
    symptom: "Rare stalls of the whole host of up to seconds, ping included, while one program reads slowly; or \
              retransmissions towards a slow reader that sends many small segments.",
    evidence: "TcpExtTCPRcvCollapsed and PruneCalled; RcvPruned and OfoPruned count what was dropped; sockets with \
               unread data near their buffer.",
    remedy: "Read faster; fewer small writes at the far end; a smaller third number of net.ipv4.tcp_rmem, so that \
             there is less to compact.",
    undo: "The old net.ipv4.tcp_rmem.",
    counters: &["TcpExtTCPRcvCollapsed", "TcpExtPruneCalled", "TcpExtRcvPruned", "TcpExtOfoPruned"],
    reasons: &["TCP_OFO_QUEUE_PRUNE"],
    references: &[
        "net/ipv4/tcp_input.c, tcp_prune_queue",
        "blog.cloudflare.com/the-story-of-one-latency-spike",
    ],
    ..Cause::new("collapse", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let collapsed = window.sum(&["TcpExtTCPRcvCollapsed"]);
    let dropped = window.sum(&["TcpExtRcvPruned", "TcpExtOfoPruned"]);
    let Some(mut found) = judge(collapsed, dropped) else { return };
    let unread = |one: &&TcpSocket| one.state != TcpState::Listen && one.receive_queue > 0;
    let mut readers: Vec<&TcpSocket> = window.after.tcp.iter().filter(unread).collect();
    readers.sort_by_key(|one| std::cmp::Reverse(one.memory.received_bytes));
    if let Some(one) = readers.first() {
        found.what = format!(
            "{}: {} left unread by {}",
            found.what,
            size_text(one.receive_queue.into()),
            name(evidence, one)
        );
    }
    found = found
        .read("/proc/net/netstat: TcpExt TCPRcvCollapsed", collapsed.evidence())
        .read(
            "/proc/net/netstat: TcpExt PruneCalled",
            window.sum(&["TcpExtPruneCalled"]).evidence(),
        )
        .read("/proc/net/netstat: TcpExt RcvPruned, OfoPruned", dropped.evidence());
    found = listed(found, evidence, readers, "SK_MEMINFO", |one| {
        format!(
            "{} bytes unread, which take {} of {} bytes",
            one.receive_queue, one.memory.received_bytes, one.memory.receive_buffer_bytes
        )
    });
    let rmem = evidence.numbers("net/ipv4/tcp_rmem").unwrap_or_default();
    let (low, usual, most) = match rmem[..] {
        [low, usual, most] => (low, usual, most),
        _ => (4096, 131_072, 6_291_456),
    };
    let set = |most: u64| {
        format!("{}sysctl -w net.ipv4.tcp_rmem='{low} {usual} {most}'", evidence.prefix())
    };
    notes.find(found.change(
        format!(
            "read faster in that program, fewer and larger writes at its far end; {}",
            set((most / 2).max(usual))
        ),
        set(most),
    ));
}

/// Segments within a window from which the copies cost.
const COLLAPSED_MIN: u64 = 100;

fn judge(collapsed: Losses, dropped: Losses) -> Option<Finding> {
    let found = if dropped.total > 0 {
        let what = "segments or queues were dropped from full receive queues";
        finding(dropped.severity(), dropped.sentence(what)).counted(dropped, "segments")
    } else if collapsed.now > 0 {
        let what = collapsed.sentence("segments of full receive queues were compacted");
        let is_much = collapsed.now >= COLLAPSED_MIN;
        let severity = if is_much { Severity::Medium } else { Severity::Low };
        finding(severity, what).counted(collapsed, "segments")
    } else {
        return None;
    };
    Some(
        found
            .because(
                "when a buffer is full of small segments, the kernel copies all of it together in the softirq, which \
                 takes longer with its size, and then drops what still does not fit (net/ipv4/tcp_input.c, \
                 tcp_prune_queue)",
            )
            .effect("no copies in the softirq, and no drops")
            .risk("a smaller buffer lowers the rate on long paths"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(now: u64, total: u64) -> Losses {
        Losses { now, total, window: std::time::Duration::from_secs(1) }
    }

    #[test]
    fn past_compaction_is_silent_and_past_drops_are_low() {
        assert_eq!(judge(losses(0, 50), losses(0, 0)), None);
        assert_eq!(judge(losses(500, 500), losses(0, 0)).unwrap().severity, Severity::Medium);
        assert_eq!(judge(losses(0, 50), losses(0, 3)).unwrap().severity, Severity::Low);
        assert_eq!(judge(losses(0, 50), losses(1, 3)).unwrap().severity, Severity::High);
    }
}
