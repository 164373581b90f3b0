//! Connection entries that could not be inserted, because another has the same addresses and ports.

use std::collections::{BTreeMap, BTreeSet};

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses};
use crate::causes::finding::{Finding, Notes, finding};
use crate::net::Connection;
use crate::net::nftables::Expression;

use super::rules::place;

const UDP: u8 = 17;
const DNS: u16 = 53;

pub(super) const RACE: Cause = Cause {
    title: "Two packets of one UDP socket race to make the same connection entry",
    symptom: "DNS look-ups take 5 s now and then, in containers or behind a router, never on the host itself",
    evidence: "insert_failed and drop of /proc/net/stat/nf_conntrack grow while entries are of UDP to a translated destination: \
               A and AAAA are asked at once from one port, and the second packet is dropped",
    remedy: "`options single-request-reopen` in resolv.conf, a DNS cache on the host, or notrack for DNS",
    undo: "remove the option",
    counters: &["nf_conntrack insert_failed"],
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://man7.org/linux/man-pages/man5/resolv.conf.5.html",
        "https://github.com/kubernetes/kubernetes/issues/56903",
    ],
    is_of_forwarding: true,
    ..Cause::new("ct-race", race)
};

pub(super) const COLLISION: Cause = Cause {
    title: "Two flows get the same source port after masquerading",
    symptom: "connects through a NAT gateway take 1 or 3 s or time out, more often the more connections go to one server",
    evidence: "insert_failed and drop of /proc/net/stat/nf_conntrack grow while many entries have a translated source and one \
               destination; few ports to choose from",
    remedy: "`masquerade fully-random`, a wider range of ports, several source addresses",
    undo: "the old rule",
    counters: &["nf_conntrack insert_failed"],
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://wiki.nftables.org/wiki-nftables/index.php/Performing_Network_Address_Translation_(NAT)",
        "https://github.com/AndrewGuenther/fck-nat/issues/144",
    ],
    is_of_forwarding: true,
    ..Cause::new("snat-collision", collision)
};

/// Entries by which the two causes are told apart: both raise the same counter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entries {
    /// UDP to a translated destination, or to a DNS server.
    racing: usize,
    /// Of one protocol and destination with a translated source: the largest group.
    crowded: usize,
    /// Source ports that the group has.
    ports: usize,
    /// Source address and destination of the group, in words.
    group: String,
}

impl Entries {
    fn of(connections: &[Connection]) -> Self {
        let is_racing = |one: &&Connection| {
            one.protocol == UDP
                && (one.has_other_destination() || one.original.destination.port() == DNS)
        };
        let mut groups: BTreeMap<_, (usize, BTreeSet<u16>)> = BTreeMap::new();
        for one in connections.iter().filter(|one| one.has_other_source()) {
            let key = (one.protocol, one.reply.destination.ip(), one.reply.source);
            let group = groups.entry(key).or_default();
            group.0 += 1;
            group.1.insert(one.reply.destination.port());
        }
        let racing = connections.iter().filter(is_racing).count();
        let largest = groups.into_iter().max_by_key(|(_, (count, _))| *count);
        match largest {
            Some(((_, from, to), (crowded, ports))) => Entries {
                racing,
                crowded,
                ports: ports.len(),
                group: format!("from {from} to {to}"),
            },
            None => Entries { racing, ..Entries::default() },
        }
    }

    fn is_collision(&self) -> bool {
        self.crowded > 1 && self.crowded >= self.racing
    }
}

/// The growth of the counter, if there is any, and the entries.
fn failed(evidence: &Evidence, notes: &mut Notes<'_>) -> Option<(Losses, Entries)> {
    let failed = match evidence.window() {
        Ok(window) => window.sum(&["nf_conntrack insert_failed"]),
        Err(why) => {
            notes.unseen(why);
            return None;
        }
    };
    if failed.now == 0 {
        return None;
    }
    match evidence.connections() {
        Ok(connections) => Some((failed, Entries::of(connections))),
        Err(why) => {
            notes.unseen(why);
            None
        }
    }
}

fn counted(failed: Losses, what: String) -> Finding {
    finding(failed.severity(), what)
        .counted(failed, "packets")
        .read("/proc/net/stat/nf_conntrack: insert_failed", failed.evidence())
}

fn race(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some((failed, entries)) = failed(evidence, notes) else { return };
    if entries.racing == 0 || entries.is_collision() {
        return;
    }
    let first = failed.sentence("first packets of connections were dropped");
    notes.find(
        counted(
            failed,
            format!(
                "{first}: another packet of the same socket made the entry meanwhile; {} UDP flows are translated, and a DNS \
                 client waits 5 s for what was dropped",
                entries.racing
            ),
        )
        .read("conntrack -L -p udp: flows to a translated destination or a DNS server", entries.racing.to_string())
        .because(
            "two first packets of one flow are translated each by itself; the entry of the second can not be inserted, and \
             its packet is dropped (resolv.conf(5), single-request-reopen)",
        )
        .effect("A and AAAA are asked from two ports")
        .risk("a little more time for each look-up")
        .change("`options single-request-reopen` in /etc/resolv.conf of the clients, or a DNS cache on this host", "remove the option"),
    );
}

fn collision(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some((failed, entries)) = failed(evidence, notes) else { return };
    if !entries.is_collision() {
        return;
    }
    let rules = evidence.rules().map(|rules| rules.chains.as_slice()).unwrap_or_default();
    let is_source =
        |one: &Expression| matches!(one, Expression::Translate { is_destination: false, .. });
    let rule = rules
        .iter()
        .flat_map(|chain| chain.rules.iter().map(move |rule| (chain, rule)))
        .find(|(_, rule)| rule.expressions.iter().any(is_source));
    let by = rule.map_or_else(|| "its rule".to_owned(), |(chain, rule)| place(chain, Some(rule)));
    let first = failed.sentence("first packets of connections were dropped");
    notes.find(
        counted(
            failed,
            format!(
                "{first}: their translated source port was taken; {} connections {} share {} ports, given by {by}",
                entries.crowded, entries.group, entries.ports
            ),
        )
        .read("conntrack -L: largest group with a translated source", format!("{} {}", entries.crowded, entries.group))
        .because(
            "a source port after translation must be free for that destination; two flows that choose the same one at once, or \
             more flows than ports, lose their first packet (nft(8), masquerade)",
        )
        .effect("ports are chosen at random of all, and collide rarely")
        .risk("connections are harder to follow in logs; fully random ports do not help if all ports are in use")
        .change(
            "`masquerade fully-random` in place of the rule, without a range of ports; with more than some 60,000 \
             connections to one server, a second source address",
            "the old rule, as `nft -a list ruleset` showed it",
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::FlowTuple;

    fn entry(protocol: u8, original: (&str, &str), reply: (&str, &str)) -> Connection {
        let tuple = |(from, to): (&str, &str)| FlowTuple {
            source: from.parse().unwrap(),
            destination: to.parse().unwrap(),
        };
        Connection {
            protocol,
            original: tuple(original),
            reply: tuple(reply),
            status: 0,
            timeout_s: 30,
        }
    }

    fn dns(port: u16) -> Connection {
        let from = format!("10.0.0.2:{port}");
        entry(17, (&from, "10.96.0.10:53"), ("10.0.1.7:53", &from))
    }

    fn masqueraded(port: u16) -> Connection {
        let (from, as_seen) =
            (format!("10.0.0.2:{port}"), format!("192.0.2.1:{}", 5000 + port % 4));
        entry(6, (&from, "198.51.100.1:443"), ("198.51.100.1:443", &as_seen))
    }

    #[test]
    fn the_two_causes_of_one_counter_are_told_apart_by_the_entries() {
        let race = Entries::of(&[dns(40_001), dns(40_002), masqueraded(1)]);
        assert_eq!((race.racing, race.crowded, race.is_collision()), (2, 1, false));
        let crowd: Vec<Connection> = (0..8).map(masqueraded).chain([dns(40_001)]).collect();
        let collision = Entries::of(&crowd);
        assert_eq!((collision.crowded, collision.ports), (8, 4));
        assert!(collision.is_collision());
        assert_eq!(Entries::of(&[]), Entries::default());
    }
}
