//! Flows that were offloaded past the rules and routes, and keep a path of the past.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::{self, Connection};

/// Most destinations whose route is asked for.
const ROUTES_MAX: usize = 256;

pub(super) const CAUSE: Cause = Cause {
    title: "A flow is offloaded past the rules and keeps an outdated path",
    symptom: "long connections through a router stall after a client roams, a port or a route changes, or a pause; new connections \
              work; rules and their counters do not see the packets",
    evidence: "entries of connection tracking with [OFFLOAD] or [HW_OFFLOAD] whose address is now reached by an interface that is \
               in no flowtable",
    remedy: "conntrack -D for the flow; take the interface out of the flowtable, or add the new one; software in place of \
             hardware offload",
    undo: "add the interface again",
    references: &[
        "https://docs.kernel.org/networking/nf_flowtable.html",
        "https://github.com/openwrt/openwrt/issues/13410",
    ],
    is_of_forwarding: true,
    ..Cause::new("flowtable", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(connections) = notes.section(evidence.connections()) else { return };
    let offloaded: Vec<&Connection> = connections.iter().filter(|one| one.is_offloaded()).collect();
    if offloaded.is_empty() {
        return;
    }
    let Some(devices) = notes.ask(evidence.system.within(net::flowtable_devices)) else { return };
    let mut routes = BTreeMap::new();
    for ip in offloaded.iter().flat_map(|one| ends(one)).take(ROUTES_MAX) {
        routes.entry(ip).or_insert_with(|| {
            let route = evidence.system.within(|| Ok(net::route_to(ip).ok()));
            route.ok().flatten().map(|route| evidence.name_of(route.ifindex))
        });
    }
    let stale = outdated(&offloaded, |ip| {
        // A route that is not known proves nothing.
        let name = routes.get(&ip)?.as_ref()?;
        (!devices.contains(name)).then(|| name.clone())
    });
    let on_card = offloaded.iter().filter(|one| one.is_offloaded_to_card()).count();
    notes.fact(format!(
        "{} flows pass by the rules in a flowtable, {on_card} of them in a card: rules and their counters do not see them",
        offloaded.len()
    ));
    let Some((first, ip, now)) = stale.first() else { return };
    let prefix = evidence.prefix();
    notes.find(
        finding(
            Severity::High,
            format!(
                "{} offloaded flows keep an outdated path, such as {} to {}: {ip} is now reached by {now}, which is in no flowtable",
                stale.len(),
                first.original.source,
                first.original.destination
            ),
        )
        .seen(Confidence::Now)
        .costs("every packet of these flows")
        .read("conntrack -L: entries with [OFFLOAD] or [HW_OFFLOAD]", offloaded.len().to_string())
        .read("nft list flowtables: devices", devices.iter().cloned().collect::<Vec<_>>().join(" "))
        .read(format!("RTM_GETROUTE of {ip}"), now.clone())
        .because(
            "an offloaded flow keeps its interface and next hop without asking routes and rules again, as long as it has packets \
             (Documentation/networking/nf_flowtable.rst)",
        )
        .effect("the flow's next packet takes the route that is there now")
        .risk("without the flowtable, forwarding costs more CPU time")
        .change(
            format!(
                "{prefix}conntrack -D --orig-src {} --orig-dst {}; and {now} in the flowtable's devices",
                first.original.source.ip(),
                first.original.destination.ip()
            ),
            "the flowtable with its previous devices",
        ),
    );
}

/// Both ends of a flow as they are reached here.
fn ends(one: &Connection) -> [IpAddr; 2] {
    [one.original.source.ip(), one.reply.source.ip()]
}

/// Flows with an end that is reached by another interface, with that end and the interface.
fn outdated<'a>(
    offloaded: &[&'a Connection],
    elsewhere: impl Fn(IpAddr) -> Option<String>,
) -> Vec<(&'a Connection, IpAddr, String)> {
    let one = |connection: &'a Connection| {
        ends(connection).into_iter().find_map(|ip| Some((connection, ip, elsewhere(ip)?)))
    };
    offloaded.iter().filter_map(|connection| one(connection)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::FlowTuple;

    #[test]
    fn flow_whose_end_is_elsewhere_now_is_outdated() {
        let (a, b) = ("10.1.0.1:4000".parse().unwrap(), "10.2.0.1:80".parse().unwrap());
        let offload = 1 << 14;
        let flow = Connection {
            protocol: 6,
            original: FlowTuple { source: a, destination: b },
            reply: FlowTuple { source: b, destination: a },
            status: offload,
            timeout_s: 0,
        };
        assert!(flow.is_offloaded() && !flow.is_offloaded_to_card());
        let found = outdated(&[&flow], |ip: IpAddr| (ip == a.ip()).then(|| "wlan1".to_owned()));
        assert_eq!(found[0].1, a.ip());
        assert!(outdated(&[&flow], |_| None).is_empty());
    }
}
