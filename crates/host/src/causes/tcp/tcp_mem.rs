//! Memory of all TCP sockets of the kernel that is used up.

use super::connections::size_text;
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net::TcpSocket;

pub(super) const CAUSE: Cause = Cause {
    title: "TCP sockets use all the memory that net.ipv4.tcp_mem allows the kernel, and segments are dropped",
    symptom: "All programs of the host get slow or unreachable at once, CPU and memory look healthy, and the \
              kernel's log says `TCP: out of memory -- consider tuning tcp_mem`. It ends when one program ends.",
    evidence: "`mem` of the TCP line of /proc/net/sockstat (pages, all namespaces) against net.ipv4.tcp_mem; \
               TcpExtTCPMemoryPressures, PruneCalled, RcvPruned, TCPAbortOnMemory; the sockets with most unread \
               data.",
    remedy: "The program that leaves data unread or writes to ends that do not read; a higher net.ipv4.tcp_mem.",
    undo: "The old net.ipv4.tcp_mem.",
    counters: &["TcpExtTCPMemoryPressures", "TcpExtTCPAbortOnMemory"],
    reasons: &["PROTO_MEM"],
    references: &[
        "Documentation/networking/ip-sysctl.rst, tcp_mem",
        "2i2c-org/infrastructure#3299",
        "XGFan/ghproxy#2",
    ],
    ..Cause::new("tcp-mem", check)
};

/// Size of a page, bytes.
const PAGE: u64 = 4096;

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let Some(&[low, pressure, most]) = evidence.host_numbers("net/ipv4/tcp_mem").as_deref() else {
        return notes.unseen("net.ipv4.tcp_mem, which only the host has");
    };
    let Some(mut found) = judge(window, [low, pressure, most]) else { return };
    let held =
        |one: &TcpSocket| u64::from(one.memory.received_bytes) + u64::from(one.memory.sent_bytes);
    let mut largest: Vec<&TcpSocket> =
        window.after.tcp.iter().filter(|one| held(one) > 0).collect();
    largest.sort_by_key(|one| std::cmp::Reverse(held(one)));
    for one in largest.iter().take(5) {
        found = found.read(
            format!("sock_diag: SK_MEMINFO of {}", super::connections::name(evidence, one)),
            format!(
                "{} unread, {} unsent",
                size_text(one.memory.received_bytes.into()),
                size_text(one.memory.sent_bytes.into())
            ),
        );
    }
    notes.find(found);
}

/// - `limits`: of `tcp_mem`, pages.
fn judge(window: &Window, [low, pressure, most]: [u64; 3]) -> Option<Finding> {
    let used = window.latest("sockstat TCP mem")?;
    let aborted = window.sum(&["TcpExtTCPAbortOnMemory"]);
    let pressures = window.sum(&["TcpExtTCPMemoryPressures"]);
    let (severity, confidence) = if used >= most || aborted.now > 0 {
        (Severity::High, Confidence::Now)
    } else if used > pressure {
        (Severity::Medium, Confidence::Now)
    } else if pressures.total > 0 {
        (Severity::Low, Confidence::Before)
    } else {
        return None;
    };
    let set = |pages: [u64; 3]| {
        format!("sysctl -w net.ipv4.tcp_mem='{} {} {}'", pages[0], pages[1], pages[2])
    };
    let share = used * 100 / most.max(1);
    let effect = match severity {
        Severity::High => "segments are dropped and connections reset",
        Severity::Medium => "buffers no longer grow",
        _ => "the limit was reached before",
    };
    let what = format!(
        "TCP sockets of the host use {} of {} ({share} %): {effect}",
        size_text(used * PAGE),
        size_text(most * PAGE)
    );
    Some(
        finding(severity, what)
            .seen(confidence)
            .read("/proc/net/sockstat: TCP mem, of all namespaces", format!("{used} pages"))
            .read("/proc/sys/net/ipv4/tcp_mem", format!("{low} {pressure} {most}"))
            .read("/proc/net/netstat: TcpExt TCPMemoryPressures", pressures.evidence())
            .read("/proc/net/netstat: TcpExt TCPAbortOnMemory", aborted.evidence())
            .because(
                "above the second number of tcp_mem the kernel shrinks buffers, above the third it drops what it \
                 receives and resets orphans; data that programs leave unread counts (ip-sysctl.rst, tcp_mem)",
            )
            .effect("connections of all programs are served again")
            .risk("kernel memory that no program can use; a program that never reads fills the higher limit, too")
            .change(
                format!(
                    "end or repair the program whose sockets hold most; {} (host-only)",
                    set([low * 2, pressure * 2, most * 2])
                ),
                set([low, pressure, most]),
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(pages: u64, pressures: u64) -> Option<Severity> {
        let counters =
            [("sockstat TCP mem", 0, pages), ("TcpExtTCPMemoryPressures", pressures, pressures)];
        judge(&Window::with_counters(&counters), [100, 200, 300]).map(|found| found.severity)
    }

    #[test]
    fn memory_is_judged_by_both_limits() {
        assert_eq!(severity(100, 0), None);
        assert_eq!(severity(100, 3), Some(Severity::Low));
        assert_eq!(
            (severity(250, 1), severity(300, 1)),
            (Some(Severity::Medium), Some(Severity::High))
        );
        let aborted = [("sockstat TCP mem", 0, 9), ("TcpExtTCPAbortOnMemory", 0, 1)];
        assert_eq!(
            judge(&Window::with_counters(&aborted), [100, 200, 300]).unwrap().severity,
            Severity::High
        );
    }
}
