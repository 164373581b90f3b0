//! Rules as findings name them.

use std::collections::BTreeSet;

use crate::generated::Plain;
use crate::net::nftables::{
    Expression, NftChain, NftComparison, NftHeader, NftRule, Ruleset, Verdict,
};
use crate::text::printable;

/// Place of a rule, or of the policy of a chain, in words.
pub(super) fn place(chain: &NftChain, rule: Option<&NftRule>) -> String {
    let (family, table, name) =
        (chain.family, printable(&chain.table, 64), printable(&chain.name, 64));
    match rule {
        Some(rule) => format!("rule {} of chain {name} of table {family} {table}", rule.handle),
        None => format!("the policy of chain {name} of table {family} {table}"),
    }
}

/// Family, table and chain as words of a command; a name in which a shell would find more than a word is left out.
pub(super) fn path(chain: &NftChain) -> String {
    let word = |name: &str, otherwise| {
        Plain::word(name).map_or(otherwise, |word| word.as_str().to_owned())
    };
    format!(
        "{} {} {}",
        chain.family,
        word(&chain.table, "TABLE".to_owned()),
        word(&chain.name, "CHAIN".to_owned())
    )
}

/// Command that removes a rule, or accepts in front of a policy, and the one that undoes it.
pub(super) fn removal(prefix: &str, chain: &NftChain, rule: Option<&NftRule>) -> (String, String) {
    let path = path(chain);
    match rule {
        Some(rule) => (
            format!("{prefix}nft delete rule {path} handle {}", rule.handle),
            format!(
                "{prefix}nft insert rule {path}, and its text as `nft -a list chain {path}` showed it"
            ),
        ),
        None => (
            format!(
                "{prefix}nft insert rule {path} MATCH accept, with a match for the packets that are wanted"
            ),
            format!(
                "{prefix}nft delete rule {path} handle N, which `nft -a list chain {path}` shows"
            ),
        ),
    }
}

/// Chains that packets may meet at a hook: the base chains, and those that they jump to.
pub(super) fn chains_at<'a>(rules: &'a Ruleset, hook: &str) -> Vec<&'a NftChain> {
    let is_base = |chain: &&NftChain| chain.base.as_ref().is_some_and(|base| base.hook == hook);
    let mut to_visit: Vec<&NftChain> = rules.chains.iter().filter(is_base).collect();
    let mut seen: BTreeSet<_> = to_visit.iter().map(|chain| key(chain)).collect();
    let mut found = Vec::new();
    while let Some(chain) = to_visit.pop() {
        found.push(chain);
        for name in chain.rules.iter().flat_map(jumps) {
            let target = (chain.family, chain.table.as_str(), name);
            if !seen.insert(target) {
                continue;
            }
            to_visit.extend(rules.chains.iter().find(|chain| key(chain) == target));
        }
    }
    found
}

fn key(chain: &NftChain) -> (&'static str, &str, &str) {
    (chain.family, &chain.table, &chain.name)
}

fn jumps(rule: &NftRule) -> impl Iterator<Item = &str> {
    rule.expressions.iter().filter_map(|one| match one {
        Expression::Decide(Verdict::Jump(name) | Verdict::Goto(name)) => Some(name.as_str()),
        _ => None,
    })
}

/// Rules, and policies as `None`, that drop or refuse at a hook.
pub(super) fn drops_at<'a>(
    rules: &'a Ruleset,
    hook: &str,
) -> Vec<(&'a NftChain, Option<&'a NftRule>)> {
    let mut found = Vec::new();
    for chain in chains_at(rules, hook) {
        let drops = chain.rules.iter().filter(|rule| rule.drops());
        found.extend(drops.map(|rule| (chain, Some(rule))));
        if chain.base.as_ref().is_some_and(|base| base.drops_by_policy) {
            found.push((chain, None));
        }
    }
    found
}

/// The one destination port that a rule is about.
pub(super) fn port_of(rule: &NftRule) -> Option<u16> {
    let mut register = None;
    for one in &rule.expressions {
        match one {
            Expression::Payload { to, header: NftHeader::Transport, offset: 2, length: 2 } => {
                register = Some(*to);
            }
            Expression::Compare { from, comparison: NftComparison::Equal, with }
                if register == Some(*from) =>
            {
                return Some(u16::from_be_bytes(with.as_slice().try_into().ok()?));
            }
            Expression::XtPorts { destination: (low, high), inverted: 0, .. } if low == high => {
                return Some(*low);
            }
            _ => {}
        }
    }
    None
}

/// The rule matches packets that belong to no connection (`ct state invalid`).
pub(super) fn is_of_invalid(rule: &NftRule) -> bool {
    /// Source: linux/netfilter/nf_conntrack_common.h, NF_CT_STATE_INVALID_BIT.
    const INVALID: u32 = 1;
    let mut is_state = false;
    rule.expressions.iter().any(|one| match one {
        Expression::ConnectionState { .. } => {
            is_state = true;
            false
        }
        Expression::Mask { mask, .. } => is_state && mask.as_slice() == INVALID.to_ne_bytes(),
        Expression::Compare { comparison: NftComparison::Equal, with, .. } => {
            is_state && with.as_slice() == INVALID.to_ne_bytes()
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(expressions: Vec<Expression>) -> NftRule {
        NftRule { handle: 7, expressions }
    }

    fn compare(with: &[u8]) -> Expression {
        Expression::Compare { from: 1, comparison: NftComparison::Equal, with: with.to_vec() }
    }

    #[test]
    fn a_rule_s_port_is_that_of_the_destination() {
        let load =
            |offset| Expression::Payload { to: 1, header: NftHeader::Transport, offset, length: 2 };
        assert_eq!(port_of(&rule(vec![load(2), compare(&[0x1f, 0x90])])), Some(8080));
        assert_eq!(port_of(&rule(vec![load(0), compare(&[0x1f, 0x90])])), None);
        assert_eq!(port_of(&rule(vec![compare(&[0, 1])])), None);
    }

    #[test]
    fn a_rule_about_invalid_packets_is_known_by_its_mask() {
        let state = |mask: u32| {
            let mask = Expression::Mask {
                from: 1,
                to: 1,
                mask: mask.to_ne_bytes().into(),
                xor: vec![0; 4],
            };
            rule(vec![Expression::ConnectionState { to: 1 }, mask])
        };
        assert!(is_of_invalid(&state(1)));
        assert!(!is_of_invalid(&state(2)), "established");
        assert!(!is_of_invalid(&rule(vec![compare(&1u32.to_ne_bytes())])));
    }

    #[test]
    fn name_of_a_table_is_no_command_in_the_text_that_a_user_copies() {
        let chain = NftChain {
            family: "ip",
            table: "a;reboot".into(),
            name: "input".into(),
            base: None,
            rules: Vec::new(),
        };
        assert_eq!(path(&chain), "ip TABLE input");
    }
}
