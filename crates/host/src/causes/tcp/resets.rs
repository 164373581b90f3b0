//! Connections that end with a reset, before they are open or later.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, Severity, finding};
use crate::net::TcpState;

pub(super) const REFUSED: Cause = Cause {
    title: "Attempts to connect are refused: nothing listens on the port, or a filter rejects them",
    symptom: "connect fails at once with `Connection refused`, again and again; a service retries and fills its log.",
    evidence: "TcpAttemptFails that rises by five and more a second and by a tenth of TcpActiveOpens, without EmbryonicRsts (half-open connections \
               that clients reset, as scanners do); TcpOutRsts where the refusing port is on this host.",
    remedy: "Start the service, or correct the address and port of the client; a back-off in the client.",
    undo: "None.",
    counters: &["TcpAttemptFails"],
    reasons: &["NO_SOCKET"],
    references: &["connect(2), ECONNREFUSED", "RFC 9293 section 3.5.2"],
    ..Cause::new("refused", refused)
};

pub(super) const UNREAD: Cause = Cause {
    title: "A program closes connections with data that it has not read, so that the far end gets a reset",
    symptom: "an upload ends with `Connection reset` although the server logged an answer, such as 413; the answer never arrives.",
    evidence: "TcpExtTCPAbortOnClose that rises by a tenth of the connections opened.",
    remedy: "Read to the end before close, or shutdown(SHUT_WR) and read what still comes for a while (lingering close).",
    undo: "None.",
    counters: &["TcpExtTCPAbortOnClose"],
    references: &["RFC 2525 section 2.17", "close(2)"],
    ..Cause::new("unread-close", unread)
};

pub(super) const RESETS: Cause = Cause {
    title: "Open connections end with resets",
    symptom: "`Connection reset by peer` in the middle of requests, or answers that are cut off at their end.",
    evidence: "TcpEstabResets that rises by 20 and more a second and by a tenth of the connections opened, and why: TcpExtTCPAbortOnData (closed with \
               unread data), TCPAbortOnClose, TCPAbortOnLinger, TCPAbortOnTimeout, TCPAbortOnMemory; the rest \
               came from the far ends or their filters.",
    remedy: "Read to the end before close; no SO_LINGER of 0; idle timeouts of a client shorter than those of the \
             server or balancer.",
    undo: "None.",
    counters: &[
        "TcpEstabResets",
        "TcpExtTCPAbortOnData",
        "TcpExtTCPAbortOnClose",
        "TcpExtTCPAbortOnLinger",
    ],
    reasons: &["TCP_RESET"],
    references: &["RFC 2525 section 2.17", "RFC 9293 section 3.5.2", "haproxy/haproxy#3472"],
    ..Cause::new("resets", resets)
};

/// Fewest refused attempts within a window.
const REFUSED_MIN: u64 = 5;
/// Fewest resets within a window: clients that are killed reset theirs.
const RESETS_MIN: u64 = 20;

fn refused(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    if let Some(found) = judge_refused(window) {
        notes.find(found);
    }
}

fn judge_refused(window: &Window) -> Option<Finding> {
    let half_open = window.sum(&["TcpExtEmbryonicRsts"]);
    let failed = window.sum(&["TcpAttemptFails"]).without(half_open);
    let opened = window.sum(&["TcpActiveOpens"]);
    if failed.now < REFUSED_MIN || failed.now * 10 < opened.now {
        return None;
    }
    let sent = window.sum(&["TcpOutRsts"]);
    let place = match sent.now >= failed.now {
        true => "by this host itself: nothing listens on the port here",
        false => "by far ends: nothing listens on the port there, or a filter rejects it",
    };
    let found = finding(
        Severity::Medium,
        format!("{} {place}", failed.sentence("attempts to connect were refused")),
    );
    let found = found.counted(failed, "attempts");
    Some(
        found
            .read("/proc/net/snmp: Tcp AttemptFails", failed.evidence())
            .read("/proc/net/snmp: Tcp OutRsts", sent.evidence())
            .read("/proc/net/netstat: TcpExt EmbryonicRsts", half_open.evidence())
            .because("a host answers a SYN to a port without a listener with RST, and connect(2) fails with ECONNREFUSED")
            .effect("the service is reached")
            .change(
                "`tcpdump -ni any 'tcp[tcpflags] & tcp-rst != 0'` shows address and port: start that service, or correct the \
                 client",
                "nothing to undo",
            ),
    )
}

fn unread(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let Some(found) = judge_unread(window) else { return };
    let listeners = window.after.tcp.iter().filter(|one| one.state == TcpState::Listen);
    notes.find(listeners.take(8).fold(found, |found, one| {
        let name = format!("sock_diag: listener of TCP port {}", one.local.port());
        found.read(name, evidence.owner(one.inode))
    }));
}

fn judge_unread(window: &Window) -> Option<Finding> {
    let closed = window.sum(&["TcpExtTCPAbortOnClose"]);
    let opened = window.sum(&["TcpActiveOpens", "TcpPassiveOpens"]);
    // Of many, resets tells the same.
    let is_own = closed.now > 0 && closed.now < RESETS_MIN && closed.now * 10 >= opened.now;
    if !is_own {
        return None;
    }
    let what = closed.sentence(
        "connections were closed by a program of this host with unread data, so that their far ends got a reset",
    );
    Some(
        finding(Severity::Medium, what)
            .counted(closed, "connections")
            .read("/proc/net/netstat: TcpExt TCPAbortOnClose", closed.evidence())
            .read("/proc/net/snmp: Tcp PassiveOpens and ActiveOpens", opened.evidence())
            .because(
                "close(2) with data in the receive queue sends RST in place of FIN, and the far end's kernel discards what \
                 it has not read, the answer too (RFC 2525 section 2.17)",
            )
            .effect("far ends get the answer")
            .risk("a client that never ends holds the connection: limit the time and the bytes")
            .change(
                "read the rest of the request before close, or shutdown(SHUT_WR) and read for some seconds (lingering \
                 close of a web server)",
                "the previous setting",
            ),
    )
}

fn resets(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    if let Some(found) = judge_resets(window) {
        notes.find(found);
    }
}

/// Counters of connections that this host ended with a reset, and why.
const OWN: [(&str, &str); 5] = [
    (
        "TcpExtTCPAbortOnData",
        "a program here closed them with SO_LINGER of 0, or before all had come",
    ),
    ("TcpExtTCPAbortOnClose", "a program here closed them with unread data"),
    ("TcpExtTCPAbortOnLinger", "a program here gave up waiting for their end (TCP_LINGER2)"),
    ("TcpExtTCPAbortOnTimeout", "their far ends did not answer"),
    ("TcpExtTCPAbortOnMemory", "the memory of TCP was used up"),
];

fn judge_resets(window: &Window) -> Option<Finding> {
    let reset = window.sum(&["TcpEstabResets"]);
    let opened = window.sum(&["TcpActiveOpens", "TcpPassiveOpens"]);
    if reset.now < RESETS_MIN || reset.now * 10 < opened.now {
        return None;
    }
    let own: Vec<(&str, &str, Losses)> =
        OWN.iter().map(|(name, why)| (*name, *why, window.sum(&[*name]))).collect();
    let most = own
        .iter()
        .max_by_key(|(_, _, count)| count.now)
        .filter(|(_, _, count)| count.now * 2 >= reset.now);
    let why = most.map_or("their far ends, or filters on the way, sent RST", |(_, why, _)| *why);
    // Health checks end like that on purpose.
    let is_wanted = most.is_some_and(|(name, ..)| *name == "TcpExtTCPAbortOnData");
    let severity = if is_wanted { Severity::Low } else { Severity::Medium };
    let found = finding(
        severity,
        format!("{}: {why}", reset.sentence("open connections ended with a reset")),
    );
    let mut found = found
        .counted(reset, "resets")
        .read("/proc/net/snmp: Tcp EstabResets", reset.evidence())
        .read("/proc/net/snmp: Tcp OutRsts", window.sum(&["TcpOutRsts"]).evidence());
    for (name, _, count) in own.iter().filter(|(_, _, count)| count.total > 0) {
        found = found.read(
            format!("/proc/net/netstat: {}", name.replace("TcpExt", "TcpExt ")),
            count.evidence(),
        );
    }
    Some(
        found
            .because(
                "close(2) with unread data, SO_LINGER of 0, and data for a socket that is closed send RST, which \
                 discards what was on its way (RFC 2525 section 2.17)",
            )
            .effect("answers arrive whole")
            .change(
                "read to the end before close in the program that resets; a client's idle timeout shorter than the server's",
                "the previous setting",
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_fail_are_told_from_scans() {
        let failed = |count, half| {
            Window::with_counters(&[
                ("TcpAttemptFails", 0, count),
                ("TcpExtEmbryonicRsts", 0, half),
            ])
        };
        assert!(judge_refused(&failed(4, 0)).is_none() && judge_refused(&failed(50, 50)).is_none());
        let found = judge_refused(&failed(50, 0)).unwrap();
        assert_eq!(found.severity, Severity::Medium);
        assert!(found.what.contains("by far ends"), "{}", found.what);
    }

    #[test]
    fn connections_closed_with_unread_data_are_named_if_they_are_not_rare() {
        let window = |closed, opened| {
            let counters = [("TcpExtTCPAbortOnClose", 0, closed), ("TcpPassiveOpens", 0, opened)];
            Window::with_counters(&counters)
        };
        let found = judge_unread(&window(2, 10)).unwrap();
        assert_eq!(found.severity, Severity::Medium);
        assert!(judge_unread(&window(2, 100)).is_none() && judge_unread(&window(0, 9)).is_none());
    }

    #[test]
    fn resets_are_said_to_be_of_the_side_that_sent_them() {
        let window = |own| {
            Window::with_counters(&[("TcpEstabResets", 0, 30), ("TcpExtTCPAbortOnData", 0, own)])
        };
        assert!(judge_resets(&window(0)).unwrap().what.contains("far ends"));
        assert!(judge_resets(&window(20)).unwrap().what.contains("SO_LINGER of 0"));
        assert!(judge_resets(&Window::with_counters(&[("TcpEstabResets", 5, 9)])).is_none());
    }
}
