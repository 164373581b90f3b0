//! A rule that drops packets without a tracked connection meets paths that are seen in one direction.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};

use super::counted::packets_of;
use super::rules::{drops_at, is_of_invalid, place, removal};

/// Share of all packets from which the rule does more than to drop strays, percent.
const SHARE: u64 = 5;
const PACKETS: u64 = 3;

pub(super) const CAUSE: Cause = Cause {
    title: "A rule that drops ct state invalid meets packets whose other direction is not seen here",
    symptom: "connections hang after the first packets, or never open, for hosts with two paths or two interfaces; others \
              work; it began with a firewall rule against invalid packets",
    evidence: "the counter of a rule with `ct state invalid drop` grows, or invalid of /proc/net/stat/nf_conntrack grows and \
               there is such a rule; entries without an answer",
    remedy: "net.netfilter.nf_conntrack_tcp_be_liberal=1, or notrack for that path, or remove the rule",
    undo: "the rule again, or 0",
    counters: &["nf_conntrack invalid"],
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://docs.kernel.org/networking/nf_conntrack-sysctl.html",
        "https://github.com/kubernetes/kubernetes/issues/120412",
    ],
    is_of_forwarding: true,
    ..Cause::new("ct-drop-rule", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let invalid = window.sum(&["nf_conntrack invalid"]);
    if invalid.now == 0 {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let hooks = ["prerouting", "input", "forward"];
    let dropping = hooks.iter().flat_map(|hook| drops_at(rules, hook));
    let Some((chain, Some(rule))) =
        dropping.into_iter().find(|(_, rule)| rule.is_some_and(is_of_invalid))
    else {
        return;
    };
    let dropped = packets_of(window, chain, rule).unwrap_or(invalid);
    if dropped.now == 0 {
        return;
    }
    let received = window.sum(&["IpInReceives", "Ip6InReceives"]);
    let is_many = dropped.now >= PACKETS && dropped.now * 100 >= received.now * SHARE;
    let one_way = evidence.connections().unwrap_or_default();
    let one_way = one_way.iter().filter(|one| one.protocol == 6 && !one.is_answered()).count();
    let (change, undo) = removal(&evidence.prefix(), chain, Some(rule));
    let liberal = "sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal";
    let found = finding(
        // Strays of the internet are dropped by it as intended.
        if is_many { Severity::High } else { Severity::Low },
        format!(
            "{}: {} drops what belongs to no tracked connection, as if only one direction of it passes here",
            dropped.sentence("packets were dropped"),
            place(chain, Some(rule))
        ),
    )
    .counted(dropped, "packets");
    notes.find(
        found
        .read("nftables: packets that the rule dropped", dropped.evidence())
        .read("/proc/net/stat/nf_conntrack: invalid", invalid.evidence())
        .read("/proc/net/snmp and snmp6: InReceives", received.evidence())
        .read("conntrack -L -p tcp: entries without an answer", one_way.to_string())
        .because(
            "where the other direction takes another path, the handshake is seen in part, and all that follows is invalid \
             (Documentation/networking/nf_conntrack-sysctl.rst)",
        )
        .effect("packets of connections that pass in one direction are accepted")
        .risk("the rule is also a cure for resets through address translation: be_liberal=1 takes its place there")
        .change(
            format!("{change}, or {}{liberal}=1, or `notrack` for that path", evidence.prefix()),
            format!("{undo}, or {}{liberal}=0", evidence.prefix()),
        ),
    );
}
