//! Errors of UDP and TCP that the kernel counts by protocol.

use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Notes, finding};

/// A group of counters, with the remedy.
struct Errors {
    names: &'static [&'static str],
    /// Counted among `names` and reported by another finding.
    but: &'static [&'static str],
    what: &'static str,
    why: &'static str,
    effect: &'static str,
    risk: &'static str,
    change: &'static str,
    undo: &'static str,
}

const ERRORS: [Errors; 3] = [
    Errors {
        names: &["UdpInCsumErrors", "Udp6InCsumErrors", "TcpInCsumErrors"],
        but: &[],
        what: "packets were dropped for a wrong checksum",
        why: "they were damaged on their way, or a sender left the checksum to a device that did not \
              compute it, as virtual switches and tunnels do (Documentation/networking/checksum-offloads.rst)",
        effect: "the packets are received",
        risk: "the sender's CPU computes the checksums",
        change: "at the sender: ethtool -K IF tx off; if that changes nothing, replace the cable or the card",
        undo: "at the sender: ethtool -K IF tx on",
    },
    Errors {
        names: &["UdpMemErrors", "Udp6MemErrors"],
        but: &[],
        what: "datagrams were dropped because the memory of all UDP sockets was used up",
        why: "all UDP sockets share a limit (udp(7), udp_mem)",
        effect: "bursts are kept until the programs run",
        risk: "memory",
        change: "sysctl -w net.ipv4.udp_mem with larger numbers (host-only), or find the program that does \
                 not read: `ss -uam`",
        undo: "sysctl -w net.ipv4.udp_mem with the previous numbers",
    },
    Errors {
        names: &["UdpInErrors", "Udp6InErrors"],
        but: &[
            "UdpRcvbufErrors",
            "Udp6RcvbufErrors",
            "UdpInCsumErrors",
            "Udp6InCsumErrors",
            "UdpMemErrors",
            "Udp6MemErrors",
        ],
        what: "datagrams were refused by a socket's filter or by an IPsec policy",
        why: "they reached a socket that exists, and neither its buffer nor their checksum was the reason \
              (socket(7), SO_ATTACH_FILTER; ip-xfrm(8))",
        effect: "the program gets the datagrams",
        risk: "the filter has a purpose: ask the program's author",
        change: "look at `wirepath explain` for the reason: SOCKET_FILTER or XFRM_POLICY",
        undo: "nothing was changed",
    },
];

pub(super) fn protocol_errors(view: &Evidence, notes: &mut Notes<'_>) {
    let counters = match view.window() {
        Ok(counters) => counters,
        Err(why) => return notes.unseen(why),
    };
    for errors in &ERRORS {
        let lost: Losses = counters.sum(errors.names).without(counters.sum(errors.but));
        if lost.total == 0 {
            continue;
        }
        notes.find(
            finding(lost.severity(), lost.sentence(errors.what))
                .counted(lost, "packets")
                .read(
                    format!("/proc/net/snmp and snmp6: {}", errors.names.join(", ")),
                    lost.evidence(),
                )
                .because(errors.why)
                .effect(errors.effect)
                .risk(errors.risk)
                .change(errors.change, errors.undo),
        );
    }
}
