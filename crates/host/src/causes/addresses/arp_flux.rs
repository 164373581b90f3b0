//! Two interfaces in one network, each of which answers for the other's address.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::InterfaceAddress;

pub(super) const CAUSE: Cause = Cause {
    title: "Two interfaces of one network answer for each other's addresses",
    symptom: "all traffic goes over one of two cards in the same network; a host is reachable at one of its addresses only while the \
              other card is up; switches and hosts see an address move",
    evidence: "two interfaces that are up have addresses of one network, and net.ipv4.conf.*.arp_ignore is 0",
    remedy: "net.ipv4.conf.all.arp_ignore=1 and arp_announce=2, with a routing table for each; or a bond of both",
    undo: "0",
    references: &["https://docs.kernel.org/networking/ip-sysctl.html"],
    ..Cause::new("arp-flux", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(addresses) = notes.section(evidence.addresses()) else { return };
    // Loopback and point-to-point interfaces answer no ARP.
    let answers = |own: &&InterfaceAddress| {
        let link = evidence.links.get(&own.interface);
        own.ip.is_ipv4()
            && own.prefix < 31
            && link.is_some_and(|link| link.is_running && !link.is_loopback && link.mac.is_some())
    };
    let own: Vec<&InterfaceAddress> = addresses.iter().filter(answers).take(1000).collect();
    let pair = own.iter().enumerate().find_map(|(at, one)| {
        let is_rival = |other: &&&InterfaceAddress| {
            other.interface != one.interface && super::is_in_network(other.ip, one.ip, one.prefix)
        };
        Some((*one, *own[at + 1..].iter().find(is_rival)?))
    });
    let Some((one, other)) = pair else { return };
    let setting = |interface: &str| {
        evidence.number(&format!("net/ipv4/conf/{interface}/arp_ignore")).unwrap_or(0)
    };
    let (first, second) = (evidence.name_of(one.interface), evidence.name_of(other.interface));
    let ignored = setting("all").max(setting(&first).min(setting(&second)));
    if ignored > 0 {
        return;
    }
    let sysctl = format!("{}sysctl -w", evidence.prefix());
    notes.find(
        finding(
            Severity::Low,
            format!(
                "{first} ({}/{}) and {second} ({}/{}) are in one network, and each answers ARP for the other's address",
                one.ip, one.prefix, other.ip, other.prefix
            ),
        )
        .seen(Confidence::Possible)
        .read("RTM_GETADDR", format!("{first} {}, {second} {}", one.ip, other.ip))
        .read("/proc/sys/net/ipv4/conf: arp_ignore of all and of both", "0")
        .because(
            "an address belongs to the host and not to the interface, so that any interface answers for it, and the route decides by \
             which one replies leave (Documentation/networking/ip-sysctl.rst, arp_ignore)",
        )
        .effect("each address is reached by its own interface")
        .risk("replies still leave by one interface without a routing table for each; addresses on loopback answer no more")
        .change(
            format!("{sysctl} net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2"),
            format!("{sysctl} net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.all.arp_announce=0"),
        ),
    );
}
