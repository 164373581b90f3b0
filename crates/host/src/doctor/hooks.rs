//! Netfilter hooks in the packets' way.

use super::{Notes, Scene, Severity, finding};
use crate::net;

/// Rules that packets may pass one by one before it is worth a word.
const MANY_RULES: usize = 20;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    let Some(chains) = notes.ask(scene.system.within(net::chains)) else {
        return;
    };
    let hooked: Vec<_> = chains.iter().filter(|chain| chain.hook.is_some()).collect();
    let functions = match sys::bpf::hook_functions(scene.system.netns()) {
        Ok(functions) => functions,
        Err(error) => {
            notes.unseen(format!("names of hooked functions: {}", crate::text::chain(&error)));
            Vec::new()
        }
    };
    let rule_count: usize = chains.iter().map(|chain| chain.rule_count).sum();
    let named: Vec<String> = functions.iter().map(|hook| hook.to_string()).collect();
    if rule_count >= MANY_RULES {
        let mut found = finding(
            Severity::Medium,
            format!("{rule_count} firewall rules are in the way"),
        )
        .because(
            "each packet is held against the rules of each chain it meets, one after the other \
                 (nft(8))",
        )
        .effect("less CPU time for each packet")
        .risk("a firewall is there for a reason: change it with whoever wrote it")
        .change(
            "use sets and maps, put the rule that matches most first, or take flows out with a \
                 flowtable or XDP",
            "nft -f with the rules of before (`nft list ruleset` prints them)",
        );
        for chain in chains.iter().filter(|chain| chain.rule_count > 0) {
            let hook = chain.hook.unwrap_or("no hook");
            found = found.read(
                format!("nftables: {} {} {} ({hook})", chain.family, chain.table, chain.name),
                format!("{} rules", chain.rule_count),
            );
        }
        notes.find(with_functions(found, &named));
        return;
    }
    if hooked.is_empty() && named.is_empty() {
        return;
    }
    if rule_count == 0 && !hooked.is_empty() {
        let mut found = finding(Severity::Low, "firewall chains without a rule are in the way")
            .because("packets meet them, although nothing can happen (nft(8))")
            .effect("some CPU time of each packet")
            .change("nft delete table FAMILY TABLE", "nft add table, and its chains");
        for chain in hooked {
            found = found.read(
                format!("nftables: {} {} {}", chain.family, chain.table, chain.name),
                format!("hook {}", chain.hook.unwrap_or_default()),
            );
        }
        notes.find(with_functions(found, &named));
    } else if !named.is_empty() {
        notes.fact(format!("hooked functions: {}", named.join(", ")));
    }
}

fn with_functions(finding: super::Finding, named: &[String]) -> super::Finding {
    match named {
        [] => finding,
        named => finding.read("hooks of the namespace (BPF iterator)", named.join(", ")),
    }
}
