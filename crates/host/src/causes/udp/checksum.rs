//! Packets with a wrong checksum.

use super::{NAMED_MAX, dropping, named};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Notes, finding};
use crate::causes::tunnels::receiving_tunnels;

pub(super) const CAUSE: Cause = Cause {
    title: "packets arrive with a wrong checksum",
    symptom: "a capture shows the packets and no program gets them; ping may work while TCP or UDP does not",
    evidence: "UdpInCsumErrors, TcpInCsumErrors, IcmpInCsumErrors and those of IPv6; drops of the sockets",
    remedy: "at the sender `ethtool -K IF tx off`, so that its CPU computes them; else the cable, card or switch",
    undo: "at the sender `ethtool -K IF tx on`",
    counters: &NAMES,
    reasons: &["UDP_CSUM", "TCP_CSUM", "ICMP_CSUM", "SKB_CSUM"],
    references: &["Documentation/networking/checksum-offloads.rst", "ethtool(8)"],
    ..Cause::new("checksum", check)
};

const NAMES: [&str; 6] = [
    "UdpInCsumErrors",
    "Udp6InCsumErrors",
    "TcpInCsumErrors",
    "IcmpInCsumErrors",
    "Icmp6InCsumErrors",
    "UdpLiteInCsumErrors",
];

/// Packets dropped for their checksum.
pub(in crate::causes) fn losses(window: &Window) -> Losses {
    window.sum(&NAMES)
}

/// Protocols that lost some, with their counters: `TcpInCsumErrors: 3 more within 1 s, 9 in all`.
pub(in crate::causes) fn in_text(window: &Window) -> String {
    let counted = NAMES.iter().map(|name| (*name, window.sum(&[*name])));
    let some = counted.filter(|(_, lost)| lost.total > 0);
    some.map(|(name, lost)| format!("{name}: {}", lost.evidence())).collect::<Vec<_>>().join("; ")
}

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let lost = losses(window);
    // Behind a tunnel they have a finding of their own.
    if lost.total == 0 || lost.now > 0 && !receiving_tunnels(view, window).is_empty() {
        return;
    }
    let mut found =
        finding(lost.severity(), lost.sentence("packets were dropped for a wrong checksum"))
            .counted(lost, "packets")
            .read("/proc/net/snmp and snmp6", in_text(window));
    let is_udp = window.sum(&["UdpInCsumErrors", "Udp6InCsumErrors"]).now > 0;
    let is_full = window.sum(&["UdpRcvbufErrors", "Udp6RcvbufErrors"]).now > 0;
    let sockets =
        dropping(window).into_iter().filter(|(_, drops)| is_udp && !is_full && drops.now > 0);
    for (socket, drops) in sockets.take(NAMED_MAX) {
        found =
            found.read(format!("sock_diag: drops at {}", named(view, socket)), drops.evidence());
    }
    notes.find(
        found
            .because(
                "a sender left the checksum to a device that did not compute it, as virtual switches and tunnels \
                 do, or the packets were changed or damaged on their way \
                 (Documentation/networking/checksum-offloads.rst)",
            )
            .effect("the packets are received")
            .risk("the sender's CPU computes the checksums")
            .change(
                "at the sender, and at each host on the way with a tunnel or virtual switch: ethtool -K IF tx off; \
                 if that changes nothing, replace the cable or the card",
                "there: ethtool -K IF tx on",
            ),
    );
}
