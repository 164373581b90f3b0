//! Answers of a translated connection reach the client without passing this host's translation.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{self, Connection};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Most entries that are looked at.
const ENTRIES_MAX: usize = 64;

pub(super) const CAUSE: Cause = Cause {
    title: "Client and server are in one network, so that the answer skips the translation of addresses",
    symptom: "a service's address or a forwarded port works from elsewhere and not from hosts, pods or virtual machines in the \
              server's own network; the client gets the answer from the server's own address and resets or ignores it",
    evidence: "entries of connection tracking with a translated destination and no answer whose client and server are behind one \
               interface; for a bridge, net.bridge.bridge-nf-call-iptables is 0 or absent",
    remedy: "masquerade connections from that network to the server, or, for a bridge, modprobe br_netfilter and \
             net.bridge.bridge-nf-call-iptables=1",
    undo: "delete the rule; 0",
    references: &[
        "https://docs.kernel.org/networking/bridge.html",
        "https://github.com/kubernetes/kubernetes/issues/38802",
        "https://github.com/cloudnativelabs/kube-router/issues/151",
    ],
    is_of_forwarding: true,
    ..Cause::new("bridge-nf-off", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(connections) = notes.section(evidence.connections()) else { return };
    let found: Vec<(&Connection, u32)> = connections
        .iter()
        .filter(|one| {
            matches!(one.protocol, TCP | UDP)
                && one.has_other_destination()
                && !one.has_other_source()
                && !one.is_answered()
        })
        .take(ENTRIES_MAX)
        .filter_map(|one| Some((one, common_interface(evidence, one)?)))
        .collect();
    // A stream of datagrams may have no answers at all.
    let of_tcp = found.iter().find(|(one, _)| one.protocol == TCP);
    let Some((one, interface)) = of_tcp.or(found.first()) else { return };
    let link = evidence.links.get(interface);
    let is_bridge = link.is_some_and(|link| link.kind.as_deref() == Some("bridge"));
    let name = evidence.name_of(*interface);
    let file = "net/bridge/bridge-nf-call-iptables";
    let setting = evidence.sysctl(file);
    let own = evidence.system.read_net(&format!("{name}/bridge/nf_call_iptables"));
    if is_bridge && (setting.as_deref() == Some("1") || own.is_ok_and(|own| own.trim() == "1")) {
        return;
    }
    let (client, service, server) =
        (one.original.source.ip(), one.original.destination, one.reply.source);
    let (severity, confidence) = match one.protocol {
        TCP => (Severity::High, Confidence::Now),
        _ => (Severity::Low, Confidence::Possible),
    };
    let prefix = evidence.prefix();
    let what = format!(
        "{client} gets no answer from {service}: it is translated to {server}, which is behind {name} like the client and answers \
         it directly, from an address that the client does not know ({} connections)",
        found.len()
    );
    let shown = setting.unwrap_or_else(|| "absent (br_netfilter is not loaded)".to_owned());
    let masquerade = format!(
        "{prefix}nft add rule ip nat postrouting ip saddr {client} ip daddr {} masquerade",
        server.ip()
    );
    let (change, undo) = if is_bridge {
        let sysctl = format!("{prefix}sysctl -w net.bridge.bridge-nf-call-iptables");
        (
            format!("modprobe br_netfilter; {sysctl}=1; or {masquerade}"),
            format!("{sysctl}=0; or delete the rule"),
        )
    } else {
        (masquerade, "nft delete rule with its handle".to_owned())
    };
    notes.find(
        finding(severity, what)
            .seen(confidence)
            .costs("every connection of clients in that network")
            .read(
                "conntrack -L: translated, without an answer, both ends behind one interface",
                format!("{} entries, behind {name}", found.len()),
            )
            .read(format!("/proc/sys/{file}"), shown)
            .because(
                "an answer that is bridged or switched does not come through this host's translation, which alone could give it \
                 the address that the client asked (Documentation/networking/bridge.rst, nft(8))",
            )
            .effect("answers come from the address that the client asked")
            .risk(
                "with masquerade, the server sees this host as the client; with bridge-nf-call-iptables, all bridged packets pass \
                 the rules of the firewall",
            )
            .change(change, undo),
    );
}

/// Interface whose own network has both the client and the server; `None` if it is not one, or the server is away.
fn common_interface(evidence: &Evidence, one: &Connection) -> Option<u32> {
    let direct = |ip| {
        let route = evidence.system.within(|| Ok(net::route_to(ip).ok())).ok()??;
        route.gateway.is_none().then_some(route.ifindex)
    };
    let server = one.reply.source.ip();
    let interface =
        direct(one.original.source.ip()).filter(|index| direct(server) == Some(*index))?;
    let link = evidence.links.get(&interface).filter(|link| !link.is_loopback)?;
    let neighbours = &evidence.window().ok()?.after.neighbours;
    let is_away = neighbours.iter().any(|one| one.ip == server && one.is_silent());
    (!is_away).then_some(link.index)
}
