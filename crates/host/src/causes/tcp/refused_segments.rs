//! Segments that TCP itself refuses: wrong signatures, old time stamps, sequence numbers out of the window.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, finding};

pub(super) const SIGNATURE: Cause = Cause {
    title: "Segments with a wrong or missing TCP signature (MD5 or AO) are dropped",
    symptom: "A BGP session does not come up or flaps, with passwords that look right; connect times out.",
    evidence: "TcpExtTCPMD5NotFound (a key is set here and the segment has none), TCPMD5Unexpected (no key here), \
               TCPMD5Failure (another key); TCPAORequired, TCPAOKeyNotFound, TCPAOBad.",
    remedy: "The same key at both ends, for the address that the session uses; no NAT between them.",
    undo: "The old key.",
    counters: &[
        "TcpExtTCPMD5NotFound",
        "TcpExtTCPMD5Unexpected",
        "TcpExtTCPMD5Failure",
        "TcpExtTCPAOBad",
    ],
    reasons: &[
        "TCP_MD5NOTFOUND",
        "TCP_MD5UNEXPECTED",
        "TCP_MD5FAILURE",
        "TCP_AONOTFOUND",
        "TCP_AOFAILURE",
    ],
    references: &["RFC 2385", "RFC 5925", "tcp(7), TCP_MD5SIG"],
    ..Cause::new("tcp-signature", signature)
};

pub(super) const SEQUENCE: Cause = Cause {
    title: "Segments with old time stamps or sequence numbers out of the window are dropped",
    symptom: "Connections through a NAT, balancer or failover pair hang or are slow to open; SYNs are answered with \
              an ACK (challenge).",
    evidence: "TcpExtPAWSEstab, PAWSActive, TSEcrRejected and BeyondWindow that rise by ten and more a second; \
               TcpExtTCPChallengeACK, TCPSYNChallenge.",
    remedy: "The device that changes sequence numbers or joins connections of several hosts in one (NAT, proxy ARP, \
             two hosts with one address); net.ipv4.tcp_timestamps=0 as a test.",
    undo: "net.ipv4.tcp_timestamps=1.",
    counters: &["TcpExtPAWSEstab", "TcpExtPAWSActive", "TcpExtTSEcrRejected", "TcpExtBeyondWindow"],
    reasons: &["TCP_RFC7323_PAWS", "TCP_INVALID_SEQUENCE", "TCP_RFC7323_TSECR"],
    references: &["RFC 7323 section 5", "RFC 5961"],
    ..Cause::new("paws", sequence)
};

/// Fewest refused segments within a window: a few come late on any path.
const REFUSED_MIN: u64 = 10;

fn signature(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    if let Some(found) = judge_signature(window) {
        notes.find(found);
    }
}

/// Counters of wrong signatures, and what each says.
const SIGNATURES: [(&str, &str); 6] = [
    ("TcpExtTCPMD5NotFound", "a key is set here, and the far end sends none"),
    ("TcpExtTCPMD5Unexpected", "the far end sends a signature, and no key is set here"),
    ("TcpExtTCPMD5Failure", "both ends have different keys"),
    ("TcpExtTCPAORequired", "a key is set here, and the far end sends none (AO)"),
    ("TcpExtTCPAOKeyNotFound", "the far end uses a key number that is not set here (AO)"),
    ("TcpExtTCPAOBad", "both ends have different keys (AO)"),
];

fn judge_signature(window: &Window) -> Option<Finding> {
    let counts = SIGNATURES.iter().map(|(name, why)| (*name, *why, window.sum(&[*name])));
    let counts: Vec<(&str, &str, Losses)> =
        counts.filter(|(_, _, count)| count.total > 0).collect();
    let (_, why, count) = counts.iter().max_by_key(|(_, _, count)| (count.now, count.total))?;
    let what = count.sentence("segments were dropped for their TCP signature");
    let mut found = finding(count.severity(), format!("{what}: {why}")).counted(*count, "segments");
    for (name, _, count) in &counts {
        found = found.read(
            format!("/proc/net/netstat: {}", name.replace("TcpExt", "TcpExt ")),
            count.evidence(),
        );
    }
    Some(
        found
            .because("with TCP_MD5SIG or TCP_AO_ADD_KEY for an address, each segment needs its signature (RFC 2385, RFC 5925)")
            .effect("the session opens")
            .risk("none, if the key is the right one")
            .change(
                "the same key at both ends for the addresses in use: the kernel's log names them (`dmesg | grep -i 'MD5\\|TCP-AO'`)",
                "the old key",
            ),
    )
}

fn sequence(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    if let Some(found) = judge_sequence(window, &evidence.prefix()) {
        notes.find(found);
    }
}

fn judge_sequence(window: &Window, prefix: &str) -> Option<Finding> {
    let refused = window.sum(SEQUENCE.counters);
    if refused.now < REFUSED_MIN {
        return None;
    }
    let challenges = window.sum(&["TcpExtTCPChallengeACK", "TcpExtTCPSYNChallenge"]);
    let what =
        refused.sentence("segments were dropped for old time stamps or wrong sequence numbers");
    let found = finding(refused.severity(), what).counted(refused, "segments");
    let mut found = found
        .read("/proc/net/netstat: TcpExt TCPChallengeACK, TCPSYNChallenge", challenges.evidence());
    for name in SEQUENCE.counters {
        let source = format!("/proc/net/netstat: {}", name.replace("TcpExt", "TcpExt "));
        found = found.read(source, window.sum(&[*name]).evidence());
    }
    Some(
        found
            .because(
                "a segment older than the last one, or for another connection of the same ports, is dropped and answered \
                 with an acknowledgement (RFC 7323 section 5, RFC 5961)",
            )
            .effect("segments of a connection are accepted")
            .risk("without time stamps, fast connections are less protected against old segments")
            .change(
                format!(
                    "find the device that mixes connections (NAT, balancer, two hosts with one address); as a test \
                     {prefix}sysctl -w net.ipv4.tcp_timestamps=0"
                ),
                format!("{prefix}sysctl -w net.ipv4.tcp_timestamps=1"),
            ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::Severity;

    #[test]
    fn wrong_signature_is_named_by_the_end_that_lacks_the_key() {
        let found =
            judge_signature(&Window::with_counters(&[("TcpExtTCPMD5NotFound", 2, 9)])).unwrap();
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.contains("the far end sends none"), "{}", found.what);
        assert!(judge_signature(&Window::with_counters(&[("TcpExtTCPAOGood", 2, 9)])).is_none());
    }

    fn finding(count: u64) -> Option<Finding> {
        judge_sequence(&Window::with_counters(&[("TcpExtPAWSEstab", 0, count)]), "")
    }

    #[test]
    fn few_old_segments_are_no_finding() {
        assert!(finding(9).is_none());
        assert_eq!(finding(40).unwrap().severity, Severity::High);
    }
}
