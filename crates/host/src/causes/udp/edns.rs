//! Answers of DNS that are too large for a packet.

use super::reasm::Torn;
use super::{NAMED_MAX, named};
use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::UdpSocket;

pub(super) const CAUSE: Cause = Cause {
    title: "large DNS answers arrive in fragments, and some of them do not arrive",
    symptom: "look-ups of names with long answers (TXT, DNSSEC, many addresses) take 5 s or fail; others work; with \
              `dig +bufsize=1232` or `dig +tcp` all work",
    evidence: "fragments that miss others (IpReasmReqds without IpReasmOKs) beside a socket of DNS (port 53)",
    remedy: "an EDNS buffer size of 1232 at the resolver and the server (RFC 9715, DNS flag day 2020)",
    undo: "the previous size",
    counters: &["IpReasmFails", "Ip6ReasmFails", "IpFragCreates"],
    references: &["RFC 9715", "NLnetLabs/unbound#106", "PowerDNS/pdns#7307"],
    ..Cause::new("edns", check)
};

const DNS: u16 = 53;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    if let Some(torn) = Torn::of(window).filter(|torn| torn.lost.now > 0) {
        let Some(asker) =
            sockets(window, |one| one.remote.port() == DNS || one.local.port() == DNS).next()
        else {
            return;
        };
        let who = if asker.remote.port() == DNS {
            format!("{} asks {}", view.owner(asker.inode), asker.remote.ip())
        } else {
            format!("{} resolves names", named(view, asker))
        };
        let found = finding(
            torn.lost.severity(),
            format!("answers of DNS arrive without some of their fragments, while {who}: large answers are lost"),
        )
        .counted(torn.lost, "datagrams")
        .read("/proc/net/snmp and snmp6: ReasmReqds", window.sum(&["IpReasmReqds", "Ip6ReasmReqds"]).evidence())
        .read("/proc/net/snmp and snmp6: ReasmOKs", window.sum(&["IpReasmOKs", "Ip6ReasmOKs"]).evidence());
        notes.find(with_texts(found, "at the resolver"));
        return;
    }
    let made = window.sum(&["IpFragCreates", "Ip6FragCreates"]);
    let Some(server) =
        sockets(window, |one| one.local.port() == DNS && !one.local.ip().is_loopback()).next()
    else {
        return;
    };
    if made.now > 0 {
        let found = finding(
            Severity::Low,
            format!("{} sends answers in fragments, which many networks drop", named(view, server)),
        )
        .seen(Confidence::Possible)
        .read("/proc/net/snmp and snmp6: FragCreates", made.evidence());
        notes.find(with_texts(found, "at the server (unbound: max-udp-size, BIND: max-udp-size, PowerDNS: udp-truncation-threshold)"));
    }
}

fn with_texts(found: crate::causes::Finding, place: &str) -> crate::causes::Finding {
    found
        .because(
            "filters and NAT devices drop fragments, which have no ports; without EDNS above 1232 bytes an answer \
             fits into a packet or comes by TCP (RFC 9715)",
        )
        .effect("long answers arrive, by TCP if need be")
        .risk("more answers come by TCP: port 53 of TCP has to be open")
        .change(format!("an EDNS buffer size of 1232 {place} (edns-buffer-size, edns-udp-size)"), "the previous size")
}

fn sockets(
    window: &Window,
    is_wanted: impl Fn(&UdpSocket) -> bool,
) -> impl Iterator<Item = &UdpSocket> {
    let both = window.after.udp.iter().chain(&window.before.udp);
    both.filter(move |one| is_wanted(one)).take(NAMED_MAX)
}
