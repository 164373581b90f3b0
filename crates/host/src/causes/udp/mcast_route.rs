//! Routes by which multicast leaves.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net;

pub(super) const CAUSE: Cause = Cause {
    title: "multicast is sent to a router's own hardware address",
    symptom: "a program sends to a group without an error, and no receiver on the network gets it",
    evidence: "a route to the group with a gateway (`ip route get 239.1.1.1`); IpExtOutMcastPkts",
    remedy: "`ip route replace 224.0.0.0/4 dev IF`, without a gateway",
    undo: "`ip route replace 224.0.0.0/4 via GATEWAY`",
    counters: &["IpExtOutMcastPkts"],
    references: &["RFC 1112 section 6.4", "ip-route(8)", "tsduck/tsduck#761"],
    ..Cause::new("mcast-route", check)
};

/// Most groups that are looked up.
const GROUPS_MAX: usize = 16;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    // Groups that are sent to, as far as they are known; and any.
    let connected = window.after.udp.iter().map(|one| one.remote.ip()).filter(IpAddr::is_multicast);
    let mut groups: Vec<IpAddr> =
        connected.collect::<BTreeSet<_>>().into_iter().take(GROUPS_MAX).collect();
    groups.push(Ipv4Addr::new(239, 255, 255, 1).into());
    groups.push(Ipv4Addr::new(224, 0, 1, 1).into());
    let sent = window.sum(&["IpExtOutMcastPkts"]);
    for group in groups.into_iter().filter(IpAddr::is_ipv4) {
        // Without a route a send fails, and its program knows.
        let Ok(route) = view.system.within(|| net::route_to(group)) else { continue };
        let (Some(gateway), Some(link)) = (route.gateway, view.links.get(&route.ifindex)) else {
            continue;
        };
        let name = &link.name;
        let (severity, confidence) = match sent.now {
            0 => (Severity::Low, Confidence::SetUp),
            _ => (Severity::High, Confidence::Now),
        };
        let mut found = finding(
            severity,
            format!(
                "datagrams to {group} leave {name} in frames to the router {gateway}, which no member of the group takes"
            ),
        );
        if sent.now > 0 {
            found = found.costs(format!("{:.0} multicast packets a second", sent.per_second()));
        }
        let route_command = format!("{}ip route replace 224.0.0.0/4", view.prefix());
        notes.find(
            found
                .seen(confidence)
                .read(format!("ip route get {group}"), format!("via {gateway} dev {name}"))
                .read("/proc/net/netstat: IpExt OutMcastPkts", sent.evidence())
                .because(
                    "a route with a gateway gives the frame the gateway's hardware address, and multicast needs \
                     that of the group, 01:00:5e:... (RFC 1112 section 6.4)",
                )
                .effect("members on the network get the datagrams")
                .risk("a router that relays them from unicast frames no longer does")
                .change(
                    format!("{route_command} dev {name}"),
                    format!("{route_command} via {gateway} dev {name}"),
                ),
        );
        return;
    }
}
