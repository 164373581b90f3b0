//! A stream of UDP that is still sent to where a rule of the past led it.

use std::net::{IpAddr, SocketAddr};

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::Connection;
use crate::net::nftables::{Expression, NftComparison, NftHeader, NftRule, Ruleset, Verdict};

use super::rules::{chains_at, port_of};

const UDP: u8 = 17;
/// Most entries that are named.
const NAMED_MAX: usize = 3;
/// Time since the last packet within which a stream is alive, seconds.
const ALIVE_S: u64 = 3;

pub(super) const CAUSE: Cause = Cause {
    title: "A connection entry of a UDP flow outlives its target",
    symptom: "a steady UDP stream (metrics, syslog, DNS from one port, VoIP) goes nowhere after its target was replaced or the \
              rule was made; new streams work, and it heals when the sender pauses for half a minute",
    evidence: "an entry of UDP without an answer that its packets keep alive, translated to an address that no rule has, or \
               not translated although a rule for its port is there",
    remedy: "conntrack -D for this flow; the manager of the rules should do so when it changes them",
    undo: "none: the next packet makes a new entry",
    references: &[
        "https://man7.org/linux/man-pages/man8/conntrack.8.html",
        "https://github.com/kubernetes/kubernetes/issues/59033",
        "https://github.com/kubernetes/kubernetes/issues/106274",
    ],
    is_of_forwarding: true,
    ..Cause::new("udp-stale-ct", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(connections) = notes.section(evidence.connections()) else { return };
    let timeout_s = evidence.number("net/netfilter/nf_conntrack_udp_timeout").unwrap_or(30);
    let is_alive = |one: &&Connection| {
        one.protocol == UDP && !one.is_answered() && u64::from(one.timeout_s) + ALIVE_S >= timeout_s
    };
    let alive: Vec<&Connection> = connections.iter().filter(is_alive).collect();
    if alive.is_empty() {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let own: Vec<IpAddr> =
        evidence.addresses().unwrap_or_default().iter().map(|one| one.ip).collect();
    let translator = Translator::new(evidence, rules);
    let stale: Vec<(&Connection, String)> = alive
        .iter()
        .filter_map(|one| Some((*one, translator.why_stale(evidence, one, &own)?)))
        .collect();
    let count = stale.len();
    for (one, why) in stale.into_iter().take(NAMED_MAX) {
        let (from, to) = (one.original.source, one.original.destination);
        let more = if count > NAMED_MAX { format!(" ({count} such flows)") } else { String::new() };
        notes.find(
            finding(
                Severity::High,
                format!("UDP from {from} to {to} goes to {} without an answer: {why}{more}", one.reply.source),
            )
            .seen(Confidence::Now)
            .costs("every packet of the flow")
            .read(
                "conntrack -L -p udp",
                format!(
                    "src={} dst={} sport={} dport={} [UNREPLIED] src={} dst={} sport={} dport={}, {} s of {timeout_s} left",
                    from.ip(),
                    to.ip(),
                    from.port(),
                    to.port(),
                    one.reply.source.ip(),
                    one.reply.destination.ip(),
                    one.reply.source.port(),
                    one.reply.destination.port(),
                    one.timeout_s
                ),
            )
            .read("nftables: rules that translate destinations", translator.count.to_string())
            .because(
                "rules of address translation are asked for the first packet of a flow alone, and each later packet keeps \
                 the entry (nft(8), Documentation/networking/nf_conntrack-sysctl.rst, nf_conntrack_udp_timeout)",
            )
            .effect("the next packet of the flow is translated by the rules that are there now")
            .change(
                format!(
                    "{}conntrack -D -p udp --orig-src {} --orig-dst {} --sport {} --dport {}",
                    evidence.prefix(),
                    from.ip(),
                    to.ip(),
                    from.port(),
                    to.port()
                ),
                "none needed: the next packet makes a new entry",
            ),
        );
    }
}

/// The rules that translate destinations.
#[derive(Debug)]
struct Translator<'a> {
    rules: &'a Ruleset,
    count: usize,
    /// Rules of programs that are not read here translate, too.
    is_partial: bool,
}

impl<'a> Translator<'a> {
    fn new(evidence: &Evidence, rules: &'a Ruleset) -> Self {
        let all = rules.chains.iter().flat_map(|chain| &chain.rules);
        let count = all.filter(|rule| translates_destination(rule)).count();
        let has_legacy = evidence
            .legacy_tables()
            .iter()
            .any(|table| table.name == "nat" && table.rule_count != Some(0));
        let has_ipvs = evidence.proc_net("ip_vs").is_ok_and(|text| text.contains("->  "));
        Translator { rules, count, is_partial: has_legacy || has_ipvs || rules.is_partial }
    }

    fn why_stale(&self, evidence: &Evidence, one: &Connection, own: &[IpAddr]) -> Option<String> {
        let target = one.reply.source.ip();
        let to = one.original.destination;
        if !one.has_other_destination() {
            // A datagram to this host that no program waits for.
            let is_lost = own.contains(&to.ip())
                && !evidence
                    .window()
                    .ok()?
                    .after
                    .udp
                    .iter()
                    .any(|one| one.local.port() == to.port());
            return self.is_translated(to, is_lost).then(|| {
                format!(
                    "a rule for port {} would translate it, and the flow began before the rule",
                    to.port()
                )
            });
        }
        if self.is_partial {
            let window = evidence.window().ok()?;
            let is_dead =
                window.after.neighbours.iter().any(|one| one.ip == target && one.is_silent());
            return is_dead.then(|| format!("no host has the address {target} any more"));
        }
        let is_known = own.contains(&target) && self.count > 0 || self.has_address(target);
        (!is_known).then(|| format!("no rule translates to {target} any more"))
    }

    /// A value in a rule or a map has the address.
    fn has_address(&self, ip: IpAddr) -> bool {
        let bytes = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let holds = |value: &[u8]| value.windows(bytes.len()).any(|part| part == bytes);
        let mut rules = self.rules.chains.iter().flat_map(|chain| &chain.rules);
        let mut elements = self.rules.sets.iter().flat_map(|set| &set.elements);
        rules.any(|rule| {
            rule.expressions.iter().any(|one| match one {
                Expression::Load { bytes, .. } => holds(bytes),
                Expression::Translate { addresses, .. } => addresses.contains(&ip),
                _ => false,
            })
        }) || elements.any(|one| one.value.as_deref().is_some_and(holds))
    }

    /// A rule or a map translates new flows to an address and port.
    ///
    /// - `is_lost`: nothing else takes such packets, so that a rule may have conditions that are not read here.
    fn is_translated(&self, to: SocketAddr, is_lost: bool) -> bool {
        let port = to.port().to_be_bytes();
        // Maps of a port, and of address, protocol and port in words of four bytes, as kube-proxy has them.
        let words = match to.ip() {
            IpAddr::V4(ip) => [&ip.octets()[..], &[UDP, 0, 0, 0], &port, &[0, 0]].concat(),
            IpAddr::V6(ip) => [&ip.octets()[..], &[UDP, 0, 0, 0], &port, &[0, 0]].concat(),
        };
        let is_own = |key: &[u8]| key == words.as_slice() || (is_lost && key == port.as_slice());
        let mut elements = self.rules.sets.iter().flat_map(|set| &set.elements);
        if elements.any(|one| is_own(&one.key) && (one.value.is_some() || one.verdict.is_some())) {
            return true;
        }
        chains_at(self.rules, "prerouting").into_iter().flat_map(|chain| &chain.rules).any(|rule| {
            (translates_destination(rule) || jumps_for(rule, to.ip()))
                && port_of(rule) == Some(to.port())
                && is_for_udp(rule)
                && rule.expressions.iter().all(|one| is_met(one, to.ip(), is_lost))
        })
    }
}

/// The rule jumps for one address, as the services of kube-proxy do.
fn jumps_for(rule: &NftRule, ip: IpAddr) -> bool {
    rule.expressions.iter().any(|one| matches!(one, Expression::Decide(Verdict::Jump(_))))
        && rule.expressions.iter().any(|one| match (one, ip) {
            (Expression::Compare { with, .. }, IpAddr::V4(ip)) => with.as_slice() == ip.octets(),
            (Expression::Compare { with, .. }, IpAddr::V6(ip)) => with.as_slice() == ip.octets(),
            _ => false,
        })
}

fn translates_destination(rule: &NftRule) -> bool {
    rule.expressions
        .iter()
        .any(|one| matches!(one, Expression::Translate { is_destination: true, .. }))
}

/// The rule compares the protocol with UDP.
fn is_for_udp(rule: &NftRule) -> bool {
    rule.expressions.iter().any(|one| match one {
        Expression::Compare { with, .. } => with.as_slice() == [UDP],
        Expression::XtPorts { protocol, .. } => *protocol == UDP,
        _ => false,
    })
}

/// An expression that does not exclude the address.
///
/// - `is_lost`: conditions of other kinds are taken for met.
fn is_met(one: &Expression, ip: IpAddr, is_lost: bool) -> bool {
    match one {
        Expression::Unread { .. }
        | Expression::Unknown { .. }
        | Expression::ConnectionState { .. }
        | Expression::Lookup { .. }
        | Expression::Range { .. }
        | Expression::Mask { .. } => is_lost,
        // Interfaces and marks; 16 is the protocol.
        Expression::Meta { key, .. } => *key == 16 || is_lost,
        Expression::Payload { header: NftHeader::Network, offset, .. } => {
            // Addresses of the sender are not compared.
            is_lost || matches!((offset, ip), (9 | 16, IpAddr::V4(_)) | (6 | 24, IpAddr::V6(_)))
        }
        Expression::Compare { comparison: NftComparison::Equal, with, .. } => {
            match (with.len(), ip) {
                (4, IpAddr::V4(ip)) => ip.octets().as_slice() == with.as_slice() || is_lost,
                (16, IpAddr::V6(ip)) => ip.octets().as_slice() == with.as_slice() || is_lost,
                _ => true,
            }
        }
        Expression::Compare { .. } => is_lost,
        _ => true,
    }
}
