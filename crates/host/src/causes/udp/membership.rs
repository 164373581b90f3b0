//! Memberships that are announced in a form that the network may ignore.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Membership};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net;

pub(super) const CAUSE: Cause = Cause {
    title: "a group is announced in a form that a switch or router may ignore",
    symptom: "a group arrives for some minutes, or not at all, although the program has joined it",
    evidence: "version of IGMP by interface (/proc/net/igmp), force_igmp_version, sources of /proc/net/mcfilter, \
               addresses of the interface",
    remedy: "`sysctl -w net.ipv4.conf.IF.force_igmp_version=0` for groups with sources; an IPv4 address on the interface",
    undo: "`sysctl -w net.ipv4.conf.IF.force_igmp_version=2`; `ip addr del` it",
    references: &["RFC 3376 section 7", "RFC 4541", "Documentation/networking/ip-sysctl.rst"],
    ..Cause::new("igmp-report", check)
};

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let joined = view
        .groups()
        .iter()
        .filter(|one| one.group.is_ipv4() && one.is_of_data() && one.user_count > 0);
    let joined: Vec<&Membership> = joined.collect();
    if joined.is_empty() {
        return;
    }
    let filters = view.proc_net("mcfilter").unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    for one in joined {
        let name = one.interface.as_str();
        let Some(link) = view.links.values().find(|link| link.name == name && !link.is_loopback)
        else {
            continue;
        };
        if !seen.insert(name) {
            continue;
        }
        let has_address =
            view.system.within(|| net::addresses(link.index)).is_ok_and(|found| !found.is_empty());
        if !has_address {
            let address = format!("{}ip addr add ADDRESS/24 dev {name}", view.prefix());
            notes.find(
                finding(
                    Severity::Low,
                    format!("{name} has no IPv4 address, so that its memberships, such as of {}, are announced from 0.0.0.0", one.group),
                )
                .seen(Confidence::SetUp)
                .read("/proc/net/igmp", format!("{} on {name}", one.group))
                .read(format!("ip addr show dev {name}"), "no IPv4 address")
                .because("some switches and routers ignore reports without a source (RFC 3376 section 4.2.13, RFC 4541)")
                .effect("the network forwards the group for as long as it is wanted")
                .risk("the host can be reached at the address")
                .change(address, format!("{}ip addr del ADDRESS/24 dev {name}", view.prefix())),
            );
        }
        let sources = filters.lines().filter(|line| has_source(line, name)).count();
        if sources == 0 || !matches!(one.version.as_str(), "V1" | "V2") {
            continue;
        }
        let sysctl = format!("net.ipv4.conf.{}.force_igmp_version", name.replace('.', "/"));
        let forced =
            view.sysctl(&format!("net/ipv4/conf/{name}/force_igmp_version")).unwrap_or_default();
        let (reason, change, undo) = if matches!(forced.as_str(), "1" | "2") {
            let command = format!("{}sysctl -w {sysctl}", view.prefix());
            (
                "force_igmp_version says so".to_owned(),
                format!("{command}=0"),
                format!("{command}={forced}"),
            )
        } else {
            (
                "an older querier was heard there".to_owned(),
                "let the querier of the network (router or switch) use IGMPv3".to_owned(),
                "the querier's previous version".to_owned(),
            )
        };
        notes.find(
            finding(
                Severity::Low,
                format!("groups with a chosen source are announced on {name} in IGMP{} without it: {reason}", one.version.to_lowercase()),
            )
            .seen(Confidence::SetUp)
            .read("/proc/net/igmp: Querier", one.version.clone())
            .read("/proc/net/mcfilter: included sources", sources.to_string())
            .read(format!("/proc/sys/net/ipv4/conf/{name}/force_igmp_version"), forced)
            .because(
                "IGMPv2 has no sources: a network that forwards source-specific groups only (232.0.0.0/8) ignores the \
                 report (RFC 4607, RFC 3376 section 7.2)",
            )
            .effect("the network forwards the group from its source")
            .risk("old switches that know IGMPv2 only take the reports for unknown multicast")
            .change(change, undo),
        );
    }
}

/// True if a line of `/proc/net/mcfilter` is of that interface and includes a source: index, interface, group, source,
/// sockets that include it, sockets that exclude it.
fn has_source(line: &str, interface: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.len() >= 6 && words[1] == interface && words[4].parse().is_ok_and(|count: u32| count > 0)
}
