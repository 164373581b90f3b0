//! An address that moved to another host, or that two hosts have.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{Mac, Neighbour, NeighbourState, TcpTimer};

/// Most neighbours that are named.
const NAMED_MAX: usize = 3;

pub(super) const CAUSE: Cause = Cause {
    title: "An address moved and the others were not told, or two hosts have it",
    symptom: "after a failover, the virtual address is unreachable from some hosts for up to a minute, from others at once; or a host \
              is reachable now and then, when two of them have its address",
    evidence: "the neighbour's entry has a MAC address that does not answer (state PROBE for a second and more) while packets are \
               sent there; the MAC address of a neighbour changes within the window; an own IPv6 address is a duplicate (dadfailed)",
    remedy: "announce the address several times, more than a second apart (arping -U, net.ipv4.conf.IF.arp_notify=1); here: ip neigh \
             flush",
    undo: "0; none needed for a flush",
    reasons: &["OTHERHOST"],
    references: &[
        "https://docs.kernel.org/networking/ip-sysctl.html",
        "https://www.rfc-editor.org/rfc/rfc5227",
        "https://github.com/metallb/metallb/issues/172",
        "https://github.com/openshift/machine-config-operator/issues/2782",
    ],
    is_of_forwarding: true,
    ..Cause::new("garp", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let pairs = window.after.neighbours.iter().filter_map(|after| {
        let is_same = |one: &&Neighbour| one.ip == after.ip && one.interface == after.interface;
        let before = window.before.neighbours.iter();
        Some((before.clone().find(is_same).filter(|_| after.mac.is_some())?, after))
    });
    let odd = pairs.filter(|(before, after)| {
        let is_silent =
            before.state == NeighbourState::Probe && after.state == NeighbourState::Probe;
        is_silent || before.mac.is_some_and(|mac| Some(mac) != after.mac)
    });
    for (before, after) in odd.take(NAMED_MAX) {
        notes.find(moved(evidence, before, after));
    }
    for own in evidence.addresses().unwrap_or_default().iter().filter(|own| own.is_duplicate) {
        let name = evidence.name_of(own.interface);
        let again =
            format!("{}ip addr del {}/{} dev {name}", evidence.prefix(), own.ip, own.prefix);
        let add = format!("{}ip addr add {}/{} dev {name}", evidence.prefix(), own.ip, own.prefix);
        notes.find(
            finding(Severity::High, format!("{} of {name} is not used: another host has the address already", own.ip))
                .seen(Confidence::Now)
                .read(format!("RTM_GETADDR of {name}: IFA_F_DADFAILED"), own.ip.to_string())
                .because("an IPv6 address that another host has when it is added is never used (RFC 4862, section 5.4)")
                .effect("the host has an address of its own")
                .change(format!("{again}, and one that no other host has"), add),
        );
    }
}

fn moved(evidence: &Evidence, before: &Neighbour, after: &Neighbour) -> crate::causes::Finding {
    let (ip, name) = (after.ip, evidence.name_of(after.interface));
    let waiting = evidence.window().map_or(0, |window| {
        let is_waiting = |one: &&crate::net::TcpSocket| {
            one.remote.ip() == ip && one.timer == TcpTimer::Retransmit && one.retry_count > 0
        };
        window.after.tcp.iter().filter(is_waiting).count()
    });
    let (was, is) = (mac_text(before.mac), mac_text(after.mac));
    let what = if was == is {
        format!(
            "packets to {ip} on {name} go to {is}, which does not answer: the address moved to another host, or its host is gone \
             ({waiting} TCP connections retransmit to it)"
        )
    } else {
        format!(
            "{ip} on {name} changed from {was} to {is} within a second: it moved, or two hosts have the address"
        )
    };
    let severity = if was == is { Severity::High } else { Severity::Medium };
    let prefix = evidence.prefix();
    finding(severity, what)
        .seen(Confidence::Now)
        .costs("every packet to that address")
        .read(format!("RTM_GETNEIGH of {ip}: MAC address, at both moments"), format!("{was}, {is}"))
        .read("RTM_GETNEIGH: state", format!("{:?}, confirmed {} s ago", after.state, after.confirmed_s))
        .read("sock_diag: TCP connections to it that retransmit", waiting.to_string())
        .because(
            "an entry is used until the host behind it was asked in vain, which takes up to a minute, unless the new owner announces \
             itself (Documentation/networking/ip-sysctl.rst, arp_notify and neigh/default; RFC 5227)",
        )
        .effect("the address is asked for again, and packets go to its present owner")
        .risk("with two owners it helps for a moment: one of them needs another address")
        .change(
            format!(
                "{prefix}ip neigh flush to {ip} dev {name}; at the new owner: arping -U -c 3 -I INTERFACE {ip}, and \
                 sysctl -w net.ipv4.conf.INTERFACE.arp_notify=1"
            ),
            "none needed for the flush; at the owner: sysctl -w net.ipv4.conf.INTERFACE.arp_notify=0",
        )
}

fn mac_text(mac: Option<Mac>) -> String {
    let Some(mac) = mac else { return "no MAC address".to_owned() };
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
