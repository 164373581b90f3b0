//! Bridges that forward multicast only to members.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net;

pub(super) const CAUSE: Cause = Cause {
    title: "a bridge that snoops IGMP or MLD may cut off a group",
    symptom: "a group arrives for about 260 s after it was joined and then no longer; or it ends for all when one \
              member leaves; or hosts lose IPv6",
    evidence: "multicast_snooping, multicast_querier and the known querier of the bridge; multicast_fast_leave of its \
               ports, and the hosts behind each (`bridge fdb show`)",
    remedy: "`ip link set BR type bridge mcast_querier 1`, or `mcast_snooping 0`; `bridge link set dev PORT fastleave off`",
    undo: "`mcast_querier 0`; `mcast_snooping 1`; `fastleave on`",
    references: &["RFC 4541", "ip-link(8)", "troglobit/mrouted#42", "openwrt/luci#4307"],
    is_of_forwarding: true,
    ..Cause::new("snooping", check)
};

/// Multicast frames a second that are more than discovery.
const STREAM: u64 = 50;

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let bridges =
        view.links.values().filter(|link| link.kind.as_deref() == Some("bridge") && link.is_up);
    for bridge in bridges {
        let name = &bridge.name;
        let read = |file: &str| {
            let path = format!("{name}/bridge/multicast_{file}");
            view.system.read_net(&path).ok().map(|text| text.trim().to_owned())
        };
        if read("snooping").as_deref() != Some("1") {
            continue;
        }
        fast_leave(view, notes, bridge.index, name);
        if read("querier").as_deref() != Some("0") {
            continue;
        }
        let has_querier =
            view.system.within(|| net::bridge_has_querier(bridge.index)).unwrap_or(false);
        let Ok(window) = view.window() else { continue };
        let multicast = window.link(name, "multicast");
        let group = view.groups().iter().find(|one| one.interface == *name && one.is_of_data());
        if has_querier || (multicast.now < STREAM && group.is_none()) {
            continue;
        }
        let what = group.map_or_else(
            || format!("{:.0} multicast frames a second cross it", multicast.per_second()),
            |group| format!("this host is a member of {} there", group.group),
        );
        let command = format!("{}ip link set {name} type bridge mcast_querier", view.prefix());
        notes.find(
            finding(Severity::Low, format!("bridge {name} snoops IGMP and no querier is known on it, while {what}"))
                .seen(Confidence::Possible)
                .read(format!("/sys/class/net/{name}/bridge/multicast_snooping"), "1")
                .read(format!("/sys/class/net/{name}/bridge/multicast_querier"), "0")
                .read(format!("ip -d link show {name}: querier"), "none known")
                .read(format!("link {name} multicast"), multicast.evidence())
                .because(
                    "members repeat their reports only when they are asked: without a querier each switch that snoops \
                     forgets them after 260 s, and cuts off the group (RFC 4541 section 2.1.1)",
                )
                .effect("members stay known")
                .risk("a router that should be the querier loses the election to an address below its own")
                .change(format!("{command} 1"), format!("{command} 0")),
        );
    }
}

/// Ports that end a group with the first leave, although several hosts are behind them.
fn fast_leave(view: &Evidence, notes: &mut Notes<'_>, bridge: u32, name: &str) {
    let ports = view.details.values().filter(|detail| detail.master == Some(bridge));
    for port in ports.filter_map(|detail| view.links.get(&detail.index)) {
        let path = format!("{}/brport/multicast_fast_leave", port.name);
        if view.system.read_net(&path).map_or(true, |value| value.trim() != "1") {
            continue;
        }
        let hosts = view.system.within(net::bridge_neighbours).unwrap_or_default();
        let host_count = hosts.iter().filter(|(index, _)| *index == port.index).count();
        if host_count < 2 {
            continue;
        }
        let command = format!("{}bridge link set dev {} fastleave", view.prefix(), port.name);
        notes.find(
            finding(
                Severity::Low,
                format!("a group ends for all {host_count} hosts behind {} when one of them leaves it", port.name),
            )
            .seen(Confidence::SetUp)
            .read(format!("/sys/class/net/{}/brport/multicast_fast_leave", port.name), "1")
            .read(format!("bridge fdb show br {name}: addresses behind {}", port.name), host_count.to_string())
            .because("with fast leave the bridge does not ask whether another member remains (RFC 4541 section 2.1.1)")
            .effect("the others keep the group")
            .risk("an unwanted group flows for a second or two longer")
            .change(format!("{command} off"), format!("{command} on")),
        );
    }
}
