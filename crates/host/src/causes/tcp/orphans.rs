//! Closed sockets that no program has and that still have data to send.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "So many closed sockets still send data that the kernel resets further ones",
    symptom: "Clients get resets at the end of responses under load; the kernel's log says `TCP: too many orphaned \
              sockets`.",
    evidence: "`orphan` of the TCP line of /proc/net/sockstat (all namespaces) against net.ipv4.tcp_max_orphans; \
               TcpExtTCPAbortOnMemory; sockets in FIN-WAIT-1, LAST-ACK and CLOSING without a program.",
    remedy: "net.ipv4.tcp_orphan_retries=2 ends those whose far end is gone sooner; a higher \
             net.ipv4.tcp_max_orphans.",
    undo: "The old values (tcp_orphan_retries 0 stands for 8).",
    counters: &["TcpExtTCPAbortOnMemory"],
    references: &["Documentation/networking/ip-sysctl.rst, tcp_max_orphans", "geekgao/articles#7"],
    ..Cause::new("orphans", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let Some(&[most]) = evidence.host_numbers("net/ipv4/tcp_max_orphans").as_deref() else {
        return notes.unseen("net.ipv4.tcp_max_orphans, which only the host has");
    };
    if let Some(found) = judge(window, most, &evidence.prefix()) {
        notes.find(found);
    }
}

/// - `most`: value of `tcp_max_orphans`.
fn judge(window: &Window, most: u64, prefix: &str) -> Option<Finding> {
    let orphans = window.latest("sockstat TCP orphan")?;
    // Those that do not proceed count double and fourfold.
    if orphans.saturating_mul(4) < most {
        return None;
    }
    let aborted = window.sum(&["TcpExtTCPAbortOnMemory"]);
    let (severity, confidence) = match orphans >= most || aborted.now > 0 {
        true => (Severity::High, Confidence::Now),
        false => (Severity::Low, Confidence::SetUp),
    };
    Some(
        finding(severity, format!("{orphans} closed sockets still send data, and {most} may: the kernel resets further ones"))
            .seen(confidence)
            .read("/proc/net/sockstat: TCP orphan, of all namespaces", orphans.to_string())
            .read("/proc/sys/net/ipv4/tcp_max_orphans", most.to_string())
            .read("/proc/net/netstat: TcpExt TCPAbortOnMemory", aborted.evidence())
            .because(
                "a socket that a program closed with unacknowledged data stays until it is delivered; those that do \
                 not proceed count up to four times towards tcp_max_orphans (net/ipv4/tcp_timer.c, \
                 tcp_out_of_resources)",
            )
            .effect("responses are delivered to their end")
            .risk("each orphan may hold 64 KiB of memory that cannot be swapped")
            .change(
                format!(
                    "{prefix}sysctl -w net.ipv4.tcp_orphan_retries=2, and sysctl -w net.ipv4.tcp_max_orphans={} \
                     (host-only)",
                    most * 2
                ),
                format!("{prefix}sysctl -w net.ipv4.tcp_orphan_retries=0, and sysctl -w net.ipv4.tcp_max_orphans={most}"),
            )
            .setting("tcp-orphan-retries", &Target::Netns, "2")
            .setting("tcp-max-orphans", &Target::Netns, (most * 2).to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(count: u64) -> Option<Severity> {
        let window = Window::with_counters(&[("sockstat TCP orphan", count, count)]);
        judge(&window, 1000, "").map(|found| found.severity)
    }

    #[test]
    fn orphans_are_judged_by_the_limit() {
        assert_eq!(
            (severity(100), severity(300), severity(1000)),
            (None, Some(Severity::Low), Some(Severity::High))
        );
    }
}
