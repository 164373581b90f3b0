//! Datagrams that reach a socket and are refused there.

use super::{NAMED_MAX, checksum_losses, dropping, named};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "a socket's filter refuses datagrams",
    symptom: "a program gets some datagrams of its port and never others; its buffer is not full",
    evidence: "UdpInErrors without RcvbufErrors, InCsumErrors and MemErrors; drops of the socket",
    remedy: "correct or remove the filter (SO_ATTACH_FILTER, SO_ATTACH_BPF) in the program",
    undo: "attach it again",
    counters: &["UdpInErrors", "Udp6InErrors"],
    reasons: &["SOCKET_FILTER"],
    references: &["socket(7)", "Documentation/networking/filter.rst"],
    ..Cause::new("socket-filter", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    const OTHERS: [&str; 4] =
        ["UdpRcvbufErrors", "Udp6RcvbufErrors", "UdpMemErrors", "Udp6MemErrors"];
    let refused = window.sum(&["UdpInErrors", "Udp6InErrors"]).without(window.sum(&OTHERS));
    let udp_sums = window.sum(&["UdpInCsumErrors", "Udp6InCsumErrors"]);
    // IPsec policies refuse here too, and have a finding of their own.
    let policies = window.sum(&["XfrmInTmplMismatch", "XfrmInNoPols", "XfrmInPolBlock"]);
    let refused = refused.without(udp_sums).without(policies);
    if refused.total == 0 {
        return;
    }
    let mut found = finding(
        refused.severity(),
        refused.sentence("datagrams were refused by a socket's filter"),
    )
    .counted(refused, "datagrams")
    .read(
        "/proc/net/snmp and snmp6: InErrors without those of buffers and checksums",
        refused.evidence(),
    );
    let is_alone = checksum_losses(window).now == 0 && window.sum(&OTHERS).now == 0;
    let sockets = dropping(window).into_iter().filter(|(_, drops)| is_alone && drops.now > 0);
    let sockets: Vec<_> = sockets.take(NAMED_MAX).collect();
    if let Some((socket, _)) = sockets.first() {
        found.what = refused
            .sentence(&format!("datagrams were refused by the filter of {}", named(view, socket)));
    }
    for (socket, drops) in &sockets {
        found =
            found.read(format!("sock_diag: drops at {}", named(view, socket)), drops.evidence());
    }
    notes.find(
        found
            .because(
                "they reached a socket that exists, and neither its buffer nor their checksum was the reason \
                 (socket(7), SO_ATTACH_FILTER)",
            )
            .effect("the program gets the datagrams")
            .risk("the filter has a purpose: ask the program's author")
            .change("correct the filter in the program, or start it without", "nothing was changed"),
    );
}
