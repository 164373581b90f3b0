//! Links that go down and up, and routes to links that are down.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};

pub(super) const FLAPS: Cause = Cause {
    title: "The link goes down and up again",
    symptom: "connections stall for seconds at random and addresses of DHCP are renewed",
    evidence: "`/sys/class/net/IF/carrier_changes` grows; Link is Down and Up in the kernel's log",
    remedy: "another cable, transceiver or port; no power saving or energy-efficient Ethernet \
             (ethtool --set-eee IF eee off)",
    undo: "ethtool --set-eee IF eee on",
    counters: &["carrier_changes"],
    references: &[
        "Documentation/ABI/testing/sysfs-class-net (carrier_changes)",
        "ethtool(8), --set-eee",
    ],
    is_of_forwarding: true,
    ..Cause::new("carrier-flaps", flaps)
};

pub(super) const DEAD_ROUTE: Cause = Cause {
    title: "The default route leads to an interface without a link",
    symptom: "nothing beyond the local network can be reached although another interface works",
    evidence: "`ip route`: default via a device that is NO-CARRIER (linkdown) with the smallest metric",
    remedy: "the cable, a smaller metric at the interface that works, or \
             net.ipv4.conf.all.ignore_routes_with_linkdown=1",
    undo: "net.ipv4.conf.all.ignore_routes_with_linkdown=0, or the old metric",
    reasons: &["DEV_READY"],
    references: &["Documentation/networking/ip-sysctl.rst (ignore_routes_with_linkdown)"],
    is_of_forwarding: true,
    ..Cause::new("route-without-link", dead_route)
};

/// Changes since the start that are more than those of a boot and a renewal.
const MANY: u64 = 10;

fn flaps(view: &Evidence, notes: &mut Notes<'_>) {
    for link in super::cards(view).filter(|link| link.is_up) {
        let Some(window) = notes.window(view) else { return };
        let changes = window.link(&link.name, "carrier_changes");
        let judged = judge_flaps(&link.name, changes, &view.prefix());
        judged.into_iter().for_each(|found| notes.find(found));
    }
}

fn judge_flaps(name: &str, changes: Losses, prefix: &str) -> Option<Finding> {
    if changes.now == 0 && changes.total < MANY {
        return None;
    }
    let command = format!("{prefix}ethtool --set-eee {name} eee");
    Some(
        finding(changes.severity(), changes.sentence(&format!("times the link of {name} went up or down")))
            .counted(changes, "changes")
            .read(format!("/sys/class/net/{name}/carrier_changes"), changes.evidence())
            .because(
                "each change ends the neighbours' and routes' use of the interface, and the switch learns \
                 again (Documentation/ABI/testing/sysfs-class-net)",
            )
            .effect("no pauses of seconds")
            .risk("without energy-efficient Ethernet the card needs a little more power")
            .change(
                format!("another cable, transceiver or port of the switch; or {command} off"),
                format!("{command} on"),
            ),
    )
}

/// Default routes of `/proc/net/route`: interface and metric.
fn defaults(table: &str) -> Vec<(&str, u32)> {
    const UP: u32 = 1;
    let parse = |line: &'_ str| -> Option<(usize, u32)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_default = *words.get(1)? == "00000000" && *words.get(7)? == "00000000";
        let is_up = u32::from_str_radix(words.get(3)?, 16).ok()? & UP != 0;
        (is_default && is_up).then_some(())?;
        Some((words[0].len(), words.get(6)?.parse().ok()?))
    };
    let lines = table.lines().skip(1);
    lines
        .filter_map(|line| {
            let (len, metric) = parse(line)?;
            Some((line.trim_start().get(..len)?, metric))
        })
        .collect()
}

fn dead_route(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(table) = notes.ask(view.proc_net("route")) else { return };
    let Some((name, metric)) = defaults(&table).into_iter().min_by_key(|(_, metric)| *metric)
    else {
        return;
    };
    let Some(link) = view.links.values().find(|link| link.name == name) else { return };
    let file = "net/ipv4/conf/all/ignore_routes_with_linkdown";
    if !link.is_up || link.has_carrier || view.sysctl(file).as_deref() == Some("1") {
        return;
    }
    let command =
        format!("{}sysctl -w net.ipv4.conf.all.ignore_routes_with_linkdown", view.prefix());
    notes.find(
        finding(
            Severity::Medium,
            format!("packets to other networks are sent to {name}, which has no link: its default route comes first"),
        )
        .seen(Confidence::SetUp)
        .read("/proc/net/route", format!("default, {name}, metric {metric}"))
        .read(format!("/sys/class/net/{name}/carrier"), "0")
        .because(
            "a route stays in use when its interface loses its link, unless it is told otherwise \
             (Documentation/networking/ip-sysctl.rst, ignore_routes_with_linkdown)",
        )
        .effect("the next route is used while the link is down")
        .risk("without another route, programs get an error at once instead of a time-out")
        .change(format!("plug in the cable, or {command}=1"), format!("{command}=0")),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flaps_of_now_are_high_and_those_of_the_start_are_none() {
        let window = std::time::Duration::from_secs(1);
        let judged = |now, total| judge_flaps("eth0", Losses { now, total, window }, "");
        assert_eq!(judged(2, 8).unwrap().severity, Severity::High);
        assert_eq!(judged(0, 40).unwrap().severity, Severity::Low);
        assert_eq!(judged(0, 3), None);
    }

    #[test]
    fn default_routes_are_found_among_others() {
        let table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n\
                     eth1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\n\
                     eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\n\
                     eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\nbad\n";
        assert_eq!(defaults(table), [("eth1", 100), ("eth0", 0)]);
    }
}
