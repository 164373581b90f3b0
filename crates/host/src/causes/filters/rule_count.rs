//! So many rules that each packet pays for them.

use std::collections::{BTreeMap, HashSet};

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Notes, Severity, finding};
use crate::net::nftables::{Expression, NftChain, NftRule, Ruleset, Verdict};

/// Rules in turn from which there is a finding, from which it costs a packet microseconds, and tens of them.
const FEW: usize = 20;
const SOME: usize = 100;
const MANY: usize = 1_000;
const TOO_MANY: usize = 10_000;
/// Deepest jump.
const JUMPS_MAX: usize = 16;

pub(super) const CAUSE: Cause = Cause {
    title: "So many rules that each packet pays",
    symptom: "ksoftirqd uses a CPU, throughput falls and connects take longer the longer the host is up or the more services there \
              are; flushing the rules ends it",
    evidence: "number of rules that a packet is compared with in turn at one hook; equal rules in one chain; nft_do_chain or \
               ipt_do_table in a profile",
    remedy: "sets and maps, `ct state established accept` first, no rule twice; IPVS or nftables in kube-proxy",
    undo: "nft -f with the previous rules",
    references: &[
        "https://wiki.nftables.org/wiki-nftables/index.php/Sets",
        "https://github.com/k3s-io/k3s/issues/3117",
        "https://github.com/kubernetes/kubernetes/issues/14870",
    ],
    is_of_forwarding: true,
    ..Cause::new("rule-count", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let legacy: u32 = evidence.legacy_tables().iter().filter_map(|table| table.rule_count).sum();
    let legacy = legacy as usize;
    let longest = longest(rules);
    let (hook, cost) = longest.into_iter().max_by_key(|(_, cost)| cost.first).unwrap_or_default();
    // How many of the legacy ones a packet meets in turn is not known.
    let (first, later) = (cost.first.max(legacy), cost.later);
    if first < FEW {
        return;
    }
    let severity = match (later, first) {
        (TOO_MANY.., _) => Severity::High,
        (MANY.., _) | (_, TOO_MANY..) => Severity::Medium,
        (SOME.., _) | (_, MANY..) => Severity::Low,
        _ => Severity::Info,
    };
    let what = if legacy > cost.first {
        format!("packets pass tables of iptables-legacy with {legacy} firewall rules")
    } else {
        format!(
            "the first packet of a connection is compared with {first} firewall rules in turn at the hook {hook}, and each later \
             packet with {later}"
        )
    };
    let mut found = finding(severity, what)
        .because("each packet is compared with the rules of each chain in turn; a set or map is one comparison (nft(8))")
        .effect("less CPU time for each packet, and faster connects")
        .risk("the rules have a purpose: change them with their author")
        .change(
            "use sets and maps, put `ct state established,related accept` first and remove rules that are there twice",
            "nft -f with the previous rules (`nft list ruleset` prints them)",
        );
    let mut chains: Vec<&NftChain> =
        rules.chains.iter().filter(|chain| !chain.rules.is_empty()).collect();
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.rules.len()));
    for chain in chains.iter().take(5) {
        let hook = chain.base.as_ref().map_or("no hook", |base| base.hook);
        let equal = equal_rules(chain);
        let equal =
            if equal > 0 { format!(", {equal} of them there twice") } else { String::new() };
        found = found.read(
            format!("nftables: {} {} {} ({hook})", chain.family, chain.table, chain.name),
            format!("{} rules{equal}", chain.rules.len()),
        );
    }
    for table in evidence.legacy_tables() {
        let count = table.rule_count.map_or("unknown".to_owned(), |count| count.to_string());
        found =
            found.read(format!("iptables-legacy: table {}", table.name), format!("{count} rules"));
    }
    notes.find(found);
}

/// Rules that a packet is compared with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    /// The first packet of a connection, if no rule decides on it.
    first: usize,
    /// A later one.
    later: usize,
}

/// Rules in turn at each hook; a packet meets the chains of one family there, and those of `inet`.
fn longest(rules: &Ruleset) -> BTreeMap<&'static str, Cost> {
    let mut costs: BTreeMap<(&str, &str), Cost> = BTreeMap::new();
    for chain in &rules.chains {
        let Some(base) = &chain.base else { continue };
        let families = if chain.family == "inet" { vec!["ip", "ip6"] } else { vec![chain.family] };
        let own = cost(rules, chain, JUMPS_MAX);
        for family in families {
            let sum = costs.entry((base.hook, family)).or_default();
            sum.first += own.first;
            // Translation is decided on once for a connection.
            sum.later += if base.kind == "nat" { 0 } else { own.later };
        }
    }
    let mut longest: BTreeMap<&str, Cost> = BTreeMap::new();
    for ((hook, _), cost) in costs {
        let most = longest.entry(hook).or_default();
        *most = Cost { first: most.first.max(cost.first), later: most.later.max(cost.later) };
    }
    longest
}

/// Rules of a chain and of those that all packets jump to; a jump with a condition is one comparison.
fn cost(rules: &Ruleset, chain: &NftChain, jumps_left: usize) -> Cost {
    let mut sum = Cost::default();
    let mut is_accepted = false;
    for rule in &chain.rules {
        sum.first += 1;
        sum.later += usize::from(!is_accepted);
        let target = unconditional(rule).filter(|_| jumps_left > 0).and_then(|name| {
            rules.chains.iter().find(|one| {
                one.name == name && one.table == chain.table && one.family == chain.family
            })
        });
        if let Some(target) = target {
            let inner = cost(rules, target, jumps_left - 1);
            sum.first += inner.first;
            sum.later += if is_accepted { 0 } else { inner.later };
        }
        is_accepted |= accepts_established(rule);
    }
    sum
}

/// Chain that every packet jumps to.
fn unconditional(rule: &NftRule) -> Option<&str> {
    let (last, before) = rule.expressions.split_last()?;
    let is_free =
        |one: &Expression| matches!(one, Expression::Counter { .. } | Expression::WithoutEffect);
    match last {
        Expression::Decide(Verdict::Jump(name) | Verdict::Goto(name))
            if before.iter().all(is_free) =>
        {
            Some(name)
        }
        _ => None,
    }
}

fn accepts_established(rule: &NftRule) -> bool {
    let has = |wanted: fn(&Expression) -> bool| rule.expressions.iter().any(wanted);
    let is_by_state = has(|one| match one {
        Expression::ConnectionState { .. } => true,
        Expression::Unread { name } => name == "match conntrack" || name == "match state",
        _ => false,
    });
    is_by_state && has(|one| matches!(one, Expression::Decide(Verdict::Accept)))
}

/// Rules of a chain that are equal to an earlier one.
fn equal_rules(chain: &NftChain) -> usize {
    /// A smaller chain costs little.
    const EQUAL_FROM: usize = SOME;
    const COMPARED_MAX: usize = 20_000;
    if chain.rules.len() < EQUAL_FROM {
        return 0;
    }
    let is_counter = |one: &&Expression| matches!(one, Expression::Counter { .. });
    let texts = chain.rules.iter().take(COMPARED_MAX).map(|rule| {
        let parts: Vec<_> = rule.expressions.iter().filter(|one| !is_counter(one)).collect();
        format!("{parts:?}")
    });
    let mut seen = HashSet::new();
    texts.filter(|text| !seen.insert(text.clone())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::nftables::BaseChain;

    fn rule(handle: u64, expressions: Vec<Expression>) -> NftRule {
        NftRule { handle, expressions }
    }

    fn chain(name: &str, is_base: bool, rules: Vec<NftRule>) -> NftChain {
        let base = BaseChain {
            hook: "input",
            priority: 0,
            kind: "filter".into(),
            drops_by_policy: false,
            devices: Vec::new(),
        };
        NftChain {
            family: "ip",
            table: "filter".into(),
            name: name.into(),
            base: is_base.then_some(base),
            rules,
        }
    }

    fn drops(count: u64) -> Vec<NftRule> {
        (0..count)
            .map(|at| {
                rule(at, vec![Expression::Meta { to: 1, key: at as u32 }, Expression::Reject])
            })
            .collect()
    }

    #[test]
    fn all_rules_up_to_the_decision_are_counted_and_those_of_a_conditional_jump_are_not() {
        let jump = Expression::Decide(Verdict::Jump("own".into()));
        let state =
            vec![Expression::ConnectionState { to: 1 }, Expression::Decide(Verdict::Accept)];
        let mut base = vec![rule(1, vec![jump.clone()]), rule(2, state)];
        base.extend(drops(10));
        let conditional = rule(3, vec![Expression::Meta { to: 1, key: 1 }, jump]);
        base.push(conditional);
        let rules = Ruleset {
            chains: vec![chain("input", true, base), chain("own", false, drops(5))],
            ..Ruleset::default()
        };
        // The jump and its 5, the state, 10, and the jump with a condition.
        assert_eq!(longest(&rules)["input"], Cost { first: 18, later: 7 });
    }

    #[test]
    fn rules_that_are_there_twice_are_counted_in_long_chains() {
        let mut rules = drops(100);
        assert_eq!(equal_rules(&chain("a", true, rules.clone())), 0);
        rules.extend(drops(7));
        assert_eq!(equal_rules(&chain("a", true, rules)), 7);
        assert_eq!(equal_rules(&chain("a", true, [drops(3), drops(3)].concat())), 0);
    }
}
