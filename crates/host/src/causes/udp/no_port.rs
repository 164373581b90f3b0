//! Datagrams to a port that no socket has.

use std::net::IpAddr;

use super::{NAMED_MAX, named};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::UdpSocket;

pub(super) const CAUSE: Cause = Cause {
    title: "datagrams arrive at a port where no program listens, or only on another address",
    symptom: "a sender gets `connection refused` or nothing at all, although both hosts can ping each other",
    evidence: "UdpNoPorts and Udp6NoPorts; sockets of this host that send to such a port; sockets that are bound to \
               one address only; the port by `wirepath explain`",
    remedy: "start the receiver, correct the port, or bind it to the address that the sender uses (or to any)",
    undo: "stop it, or the previous port or address",
    counters: &["UdpNoPorts", "Udp6NoPorts"],
    reasons: &["NO_SOCKET"],
    references: &["udp(7)", "RFC 1122 section 4.1.3.1"],
    ..Cause::new("udp-no-port", check)
};

/// A rate of strays that a healthy host has: late answers, scans.
const STRAYS_MAX: u64 = 10;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let refused = window.sum(&["UdpNoPorts", "Udp6NoPorts"]);
    if refused.now == 0 {
        return;
    }
    let in_vain: Vec<&UdpSocket> = in_vain(window).take(NAMED_MAX).collect();
    let severity = if refused.now < STRAYS_MAX { Severity::Low } else { Severity::High };
    let named_port = in_vain.first().map(|one| {
        format!(
            "port {} of {}, to which {} sends",
            one.remote.port(),
            one.remote.ip(),
            view.owner(one.inode)
        )
    });
    let to = named_port.as_deref().unwrap_or("a port");
    let what = format!(
        "{}: no program listens there",
        refused.sentence(&format!("datagrams arrived for {to}"))
    );
    let mut found = finding(severity, what)
        .counted(refused, "datagrams")
        .read("/proc/net/snmp and snmp6: NoPorts", refused.evidence());
    for one in bound_to_one_address(window).take(NAMED_MAX) {
        found = found.read(
            format!("sock_diag: {} is bound to one address", named(view, one)),
            format!("{}, and gets no datagrams to others", one.local.ip()),
        );
    }
    let change = match in_vain.first() {
        Some(one) => format!(
            "start the program that should listen on UDP port {} of {}, or correct the sender's settings",
            one.remote.port(),
            one.remote.ip()
        ),
        None => "`wirepath explain` names the port (reason NO_SOCKET); start the program that should listen there, \
                 or bind it to the address that the sender uses, or correct the sender"
            .to_owned(),
    };
    notes.find(
        found
            .because("the kernel drops them and answers with ICMP port unreachable (RFC 1122 section 4.1.3.1)")
            .effect("the datagrams are received, or no longer sent")
            .risk("a program that listens on any address can be reached from more networks")
            .change(change, "stop the program, or the previous settings"),
    );
}

/// Connected sockets of this namespace whose far end is an address of it without a socket.
fn in_vain(window: &Window) -> impl Iterator<Item = &UdpSocket> {
    let sockets = &window.after.udp;
    let is_own = |ip: IpAddr| ip.is_loopback() || sockets.iter().any(|one| one.local.ip() == ip);
    let is_taken = |to: &UdpSocket| {
        sockets.iter().any(|one| {
            let (ip, port) = (one.local.ip(), one.local.port());
            port == to.remote.port() && (ip.is_unspecified() || ip == to.remote.ip())
        })
    };
    let connected = sockets.iter().filter(|one| !one.remote.ip().is_unspecified());
    connected.take(1000).filter(move |one| is_own(one.remote.ip()) && !is_taken(one))
}

/// Sockets of servers that are bound to one unicast address.
fn bound_to_one_address(window: &Window) -> impl Iterator<Item = &UdpSocket> {
    window.after.udp.iter().filter(|one| {
        let ip = one.local.ip();
        one.remote.ip().is_unspecified() && !ip.is_unspecified() && !ip.is_multicast()
    })
}
