//! More sockets in TIME-WAIT than the kernel keeps.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "There are more sockets in TIME-WAIT than tcp_max_tw_buckets: the kernel ends them at once",
    symptom: "The kernel's log says `TCP: time wait bucket table overflow`; rarely, a far end gets a reset for its \
              last segment.",
    evidence: "TcpExtTCPTimeWaitOverflow; `tw` of the TCP line of /proc/net/sockstat against \
               net.ipv4.tcp_max_tw_buckets.",
    remedy: "Connections that are used again (keep-alive), or the side that closes last; a higher \
             net.ipv4.tcp_max_tw_buckets.",
    undo: "The old net.ipv4.tcp_max_tw_buckets.",
    counters: &["TcpExtTCPTimeWaitOverflow"],
    references: &["Documentation/networking/ip-sysctl.rst, tcp_max_tw_buckets", "RFC 1337"],
    ..Cause::new("tw-overflow", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let ended = window.sum(&["TcpExtTCPTimeWaitOverflow"]);
    if ended.total == 0 {
        return;
    }
    let most = evidence.number("net/ipv4/tcp_max_tw_buckets").unwrap_or(0);
    let waiting = window.latest("sockstat TCP tw").unwrap_or(0);
    let set =
        |value: u64| format!("{}sysctl -w net.ipv4.tcp_max_tw_buckets={value}", evidence.prefix());
    let larger = most.saturating_mul(4).clamp(4096, i32::MAX as u64);
    let what =
        ended.sentence("sockets did not stay in TIME-WAIT, because there were as many as allowed,");
    let severity = if ended.now > 0 { Severity::Medium } else { Severity::Low };
    let found = finding(severity, what).counted(ended, "sockets");
    notes.find(
        found
            .read("/proc/net/netstat: TcpExt TCPTimeWaitOverflow", ended.evidence())
            .read("/proc/net/sockstat: TCP tw", waiting.to_string())
            .read("/proc/sys/net/ipv4/tcp_max_tw_buckets", most.to_string())
            .because(
                "a socket in TIME-WAIT repeats the last acknowledgement and keeps old segments from a new connection \
                 of the same ports; without it the far end gets a reset (RFC 1337)",
            )
            .effect("connections end in order")
            .risk("about 250 bytes of memory for each")
            .change(
                format!("keep-alive, so that fewer connections end, or {}", set(larger)),
                set(most),
            )
            .setting("tcp-max-tw-buckets", &Target::Netns, larger.to_string()),
    );
}
