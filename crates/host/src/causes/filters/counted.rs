//! Rules with a counter that drop or refuse packets now.

use std::collections::HashMap;

use crate::causes::evidence::{Losses, Window};
use crate::net::nftables::{DropCount, NftChain, NftRule, Ruleset};

/// Packets that a rule dropped; `None` if it has no counter.
pub(super) fn packets_of(window: &Window, chain: &NftChain, rule: &NftRule) -> Option<Losses> {
    let is_own = |one: &&DropCount| {
        one.handle == rule.handle && one.family == chain.family && one.table == chain.table
    };
    let after = window.after.drops.iter().find(is_own)?;
    let before = window.before.drops.iter().find(is_own);
    // It is made within the window if it was not there before.
    Some(window.losses(before.map_or(0, |one| one.packets_count), after.packets_count))
}

/// Rules whose counter grew, with their chains, most packets first.
pub(super) fn growing<'a>(
    window: &Window,
    rules: &'a Ruleset,
) -> Vec<(&'a NftChain, &'a NftRule, Losses)> {
    if window.after.drops == window.before.drops {
        return Vec::new();
    }
    let before: HashMap<_, _> =
        window.before.drops.iter().map(|one| (key(one), one.packets_count)).collect();
    let grown: HashMap<_, _> = window
        .after
        .drops
        .iter()
        .map(|one| (key(one), (before.get(&key(one)).copied().unwrap_or(0), one.packets_count)))
        .filter(|(_, (before, after))| after > before)
        .collect();
    let all =
        rules.chains.iter().flat_map(|chain| chain.rules.iter().map(move |rule| (chain, rule)));
    let mut found: Vec<_> = all
        .filter_map(|(chain, rule)| {
            let (before, after) = grown.get(&(chain.family, chain.table.as_str(), rule.handle))?;
            Some((chain, rule, window.losses(*before, *after)))
        })
        .collect();
    found.sort_by_key(|(.., dropped)| std::cmp::Reverse(dropped.now));
    found
}

fn key(one: &DropCount) -> (&'static str, &str, u64) {
    (one.family, &one.table, one.handle)
}
