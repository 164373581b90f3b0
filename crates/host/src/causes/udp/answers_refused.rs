//! Answers that come from another address than the one that was asked.

use std::net::IpAddr;

use super::{NAMED_MAX, named};
use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "far ends refuse the answers of this host: they come from another address than the one that was asked",
    symptom: "queries to the second address of a server time out although it answers each of them; those to its first \
              address work",
    evidence: "IcmpInDestUnreachs that grows with UdpOutDatagrams, a UDP socket bound to any address, and several \
               addresses on this host; a capture shows the answer's source",
    remedy: "bind the program to each address, or let it answer from the address that was asked (IP_PKTINFO)",
    undo: "the previous bind address",
    counters: &["IcmpInDestUnreachs", "IcmpMsgInType3"],
    references: &["ip(7), IP_PKTINFO", "RFC 1123 section 2.3"],
    ..Cause::new("answers-refused", check)
};

/// Refusals in all from which they are no leftovers of clients that ended; a host sends one a second at most.
const FEW: u64 = 3;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let refused = window.sum(&["IcmpInDestUnreachs"]);
    let sent = window.sum(&["UdpOutDatagrams"]);
    let is_rare = refused.now * 10 < sent.now || refused.total * 20 < sent.total;
    if refused.now == 0 || refused.total < FEW || is_rare {
        return;
    }
    let servers: Vec<_> = window
        .after
        .udp
        .iter()
        .filter(|one| one.local.ip().is_unspecified() && one.remote.ip().is_unspecified())
        .filter(|one| one.local.port() != 0)
        .collect();
    let Ok(all) = view.addresses() else { return };
    let own: Vec<IpAddr> =
        all.iter().map(|one| one.ip).filter(|ip| ip.is_ipv4() && !ip.is_loopback()).collect();
    let Some(server) = servers.first().filter(|_| own.len() > 1) else { return };
    let addresses = own.iter().take(NAMED_MAX).map(ToString::to_string).collect::<Vec<_>>();
    let what = format!(
        "{}: {} answers from the source address that the route gives, which is not the address that was asked if a \
         client asked another one of {}",
        refused
            .sentence("datagrams of this host were refused by their receivers (port unreachable)"),
        named(view, server),
        addresses.join(", ")
    );
    let mut found = finding(Severity::Medium, what)
        .counted(refused, "datagrams")
        .read("/proc/net/snmp: Icmp InDestUnreachs", refused.evidence())
        .read("/proc/net/snmp: Udp OutDatagrams", sent.evidence());
    for one in servers.iter().take(NAMED_MAX) {
        found = found.read(format!("sock_diag: {}", named(view, one)), "bound to any address");
    }
    notes.find(
        found
            .because(
                "a datagram from a socket without an address has the source that the route prefers, and a client that \
                 is connected to another one gets no such datagram and answers with ICMP (RFC 1123 section 2.3)",
            )
            .effect("clients of every address get their answers")
            .risk("clients that ended before their answer came look alike: a capture tells")
            .change(
                "bind the program to each address by itself, or use IP_PKTINFO in it; `tcpdump -ni any udp` shows the \
                 source of the answers",
                "the previous bind address",
            ),
    );
}
