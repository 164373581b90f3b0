//! Connections that are refused for the time stamps of other hosts behind the same address.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "net.ipv4.tcp_tw_recycle drops SYNs of hosts that share an address behind NAT",
    symptom: "Some clients of one office or carrier cannot connect, others of the same address can; it changes from \
              minute to minute. Linux before 4.12 only.",
    evidence: "net.ipv4.tcp_tw_recycle=1 and TcpExtPAWSPassive.",
    remedy: "net.ipv4.tcp_tw_recycle=0; net.ipv4.tcp_tw_reuse=1 spares ports of outgoing connections without harm.",
    undo: "net.ipv4.tcp_tw_recycle=1.",
    counters: &["TcpExtPAWSPassive"],
    references: &[
        "Linux commit 4396e46187ca",
        "cloudfoundry-attic/cf-release#758",
        "owncloud-archive/documentation#1343",
    ],
    ..Cause::new("tw-recycle", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    // Linux 4.12 and newer have no such setting.
    if evidence.number("net/ipv4/tcp_tw_recycle").unwrap_or(0) == 0 {
        return;
    }
    let Some(window) = notes.window(evidence) else { return };
    notes.find(judge(window.sum(&["TcpExtPAWSPassive"]), &evidence.prefix()));
}

/// - `dropped`: SYNs with a time stamp older than that of the last one from their address.
fn judge(dropped: Losses, prefix: &str) -> Finding {
    let set = |value: u8| format!("{prefix}sysctl -w net.ipv4.tcp_tw_recycle={value}");
    let found = match dropped.total {
        0 => finding(
            Severity::Low,
            "tcp_tw_recycle is on: it drops SYNs of clients that share an address behind NAT",
        ),
        _ => {
            let what = "SYNs were dropped for their time stamps (tcp_tw_recycle is on)";
            finding(dropped.severity(), dropped.sentence(what)).counted(dropped, "SYNs")
        }
    };
    found
        .read("/proc/sys/net/ipv4/tcp_tw_recycle", "1")
        .read("/proc/net/netstat: TcpExt PAWSPassive", dropped.evidence())
        .because(
            "with it, the kernel remembers the last time stamp of each address and drops a SYN with an older one; \
             hosts behind one NAT have clocks of their own (Linux commit 4396e46187ca removed it)",
        )
        .effect("all clients connect at once")
        .risk("more sockets in TIME-WAIT, which are cheap")
        .change(set(0), set(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_alone_is_low_and_drops_are_high() {
        let none = Losses { now: 0, total: 0, window: std::time::Duration::from_secs(1) };
        assert_eq!(judge(none, "").severity, Severity::Low);
        let found = judge(Losses { now: 5, total: 9, ..none }, "");
        assert_eq!(
            (found.severity, found.cost.as_deref()),
            (Severity::High, Some("5 SYNs a second"))
        );
    }
}
