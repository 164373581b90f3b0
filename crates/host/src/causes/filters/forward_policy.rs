//! Packets to be forwarded are dropped in the forward chain.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Notes, Severity, finding};

use super::rules::{drops_at, place, removal};

/// Share of forwarded packets from which more than strays are dropped, percent.
const SHARE: u64 = 10;

pub(super) const CAUSE: Cause = Cause {
    title: "The forward chain drops, often by the policy that a container engine set",
    symptom: "virtual machines, containers of another engine or routed hosts lost the network when a container engine was \
              installed; the host itself is fine",
    evidence: "packets vanish between forwarding and sending (IpForwDatagrams without IpOutTransmits; before Linux 6.7, \
               IpInReceives without either), and a chain at the hook forward drops by policy or rule",
    remedy: "an accept rule for the interface (chain DOCKER-USER where there is one), or policy accept",
    undo: "delete the rule, or policy drop",
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://docs.docker.com/engine/network/packet-filtering-firewalls/",
        "https://github.com/moby/moby/issues/39439",
    ],
    is_of_forwarding: true,
    ..Cause::new("forward-policy", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let forwarding: Vec<String> = evidence
        .links
        .values()
        .filter(|link| !link.is_loopback && evidence.forwards(link).is_some())
        .map(|link| link.name.clone())
        .collect();
    let Some(window) = notes.window(evidence) else { return };
    let (dropped, source) = dropped(window);
    if forwarding.is_empty() || dropped.now == 0 {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let is_before_6_7 = window.latest("IpOutTransmits").is_none();
    let mut suspects = drops_at(rules, "forward");
    // A rule that decides on few packets is less likely than the policy.
    suspects.sort_by_key(|(_, rule)| rule.is_some());
    let legacy = evidence.legacy_tables().iter().find(|table| table.name == "filter");
    let by = match (suspects.first(), legacy) {
        (Some((chain, rule)), _) => place(chain, *rule),
        (None, Some(_)) => "table filter of iptables-legacy".to_owned(),
        (None, None) => return,
    };
    let is_elsewhere = is_before_6_7
        && (!drops_at(rules, "input").is_empty() || !drops_at(rules, "prerouting").is_empty());
    let forwarded = window.sum(&["IpForwDatagrams", "Ip6OutForwDatagrams"]);
    let is_many = dropped.now * 100 >= forwarded.now * SHARE && !is_elsewhere;
    let severity = if is_many { Severity::High } else { Severity::Low };
    let what = format!(
        "{}: {by} drops them",
        dropped.sentence("packets were to be forwarded and did not leave")
    );
    let found = finding(severity, what).counted(dropped, "packets");
    let (change, undo) = match suspects.first() {
        Some((chain, rule)) => removal(&evidence.prefix(), chain, *rule),
        None => (
            format!("{}iptables-legacy -I FORWARD -i INTERFACE -j ACCEPT", evidence.prefix()),
            format!("{}iptables-legacy -D FORWARD -i INTERFACE -j ACCEPT", evidence.prefix()),
        ),
    };
    let found = found
        .read(source, dropped.evidence())
        .read("/proc/net/snmp: IpForwDatagrams", forwarded.evidence())
        .read("/proc/sys/net/ipv4/conf/*/forwarding of", forwarding.join(" "));
    notes.find(
        suspects
            .iter()
            .take(3)
            .fold(found, |found, (chain, rule)| found.read("nftables, hook forward", place(chain, *rule)))
            .because(
                "a container engine sets the policy of the forward chain to drop, so that it drops the packets of \
                 bridges and routes that other tools made \
                 (https://docs.docker.com/engine/network/packet-filtering-firewalls/)",
            )
            .effect("packets of the interfaces that are named are forwarded")
            .risk("the policy also keeps strangers out of the networks behind this host: name interfaces and addresses")
            .change(change, undo),
    );
}

/// Packets that were to be forwarded and did not leave, and how that is known.
fn dropped(window: &Window) -> (Losses, &'static str) {
    let forwarded = window.sum(&["IpForwDatagrams", "Ip6OutForwDatagrams"]).now;
    match window.latest("IpOutTransmits") {
        // The kernel counts them before the hook since 6.7.
        Some(_) => {
            let gone = window.vanished_leaving().now.min(forwarded);
            (
                window.losses(0, gone),
                "/proc/net/snmp: IpForwDatagrams and OutRequests without OutTransmits",
            )
        }
        None => (
            window.vanished_received(),
            "/proc/net/snmp: IpInReceives without InDelivers and ForwDatagrams",
        ),
    }
}
