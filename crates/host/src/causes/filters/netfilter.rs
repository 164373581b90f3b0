//! Netfilter: chains that packets pass, and connection tracking.

use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net;
use crate::text::chain;

/// Number of rules from which a finding is reported.
const MANY_RULES: usize = 20;

pub(super) fn hooks(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(chains) = notes.ask(view.system.within(net::chains)) else {
        return;
    };
    let hooked: Vec<_> = chains.iter().filter(|chain| chain.hook.is_some()).collect();
    let functions = match sys::bpf::hook_functions(view.system.netns()) {
        Ok(functions) => functions,
        Err(error) => {
            notes.unseen(format!("names of hooked functions: {}", chain(&error)));
            Vec::new()
        }
    };
    let rule_count: usize = chains.iter().map(|chain| chain.rule_count).sum();
    let named: Vec<String> = functions.iter().map(|hook| hook.to_string()).collect();
    if rule_count >= MANY_RULES {
        let mut found = finding(
            Severity::Medium,
            format!("packets pass {rule_count} firewall rules"),
        )
        .because("each packet is compared with the rules of each chain in turn (nft(8))")
        .effect("less CPU time for each packet")
        .risk("the rules have a purpose: change them with their author")
        .change(
            "use sets and maps, put the rule that matches most first, or take flows out with a \
                 flowtable or XDP",
            "nft -f with the previous rules (`nft list ruleset` prints them)",
        );
        for chain in chains.iter().filter(|chain| chain.rule_count > 0) {
            let hook = chain.hook.unwrap_or("no hook");
            found = found.read(
                format!("nftables: {} {} {} ({hook})", chain.family, chain.table, chain.name),
                format!("{} rules", chain.rule_count),
            );
        }
        notes.find(with_functions(view, found, &named));
        return;
    }
    if hooked.is_empty() && named.is_empty() {
        return;
    }
    if rule_count == 0 && !hooked.is_empty() {
        let mut found = finding(Severity::Low, "packets pass firewall chains without a rule")
            .because("each packet enters them without any effect (nft(8))")
            .effect("saves some CPU time for each packet")
            .change("nft delete table FAMILY TABLE", "nft add table, and its chains");
        for chain in hooked {
            found = found.read(
                format!("nftables: {} {} {}", chain.family, chain.table, chain.name),
                format!("hook {}", chain.hook.unwrap_or_default()),
            );
        }
        notes.find(with_functions(view, found, &named));
    } else if !named.is_empty() {
        notes.fact(format!("hooked functions: {}", named.join(", ")));
    }
}

fn with_functions(view: &Evidence, finding: Finding, named: &[String]) -> Finding {
    let mut found = match named {
        [] => finding,
        named => finding.read("hooks of the namespace (BPF iterator)", named.join(", ")),
    };
    let Some(observed) = &view.observed else { return found };
    for hook in &observed.hooks {
        found = found.read("runs of hooks (observer)", hook.text());
    }
    let functions: u64 = observed.hooks.iter().map(|hook| hook.functions_count).sum();
    let frames = observed.interfaces.iter().map(|one| one.received.count).sum::<u64>();
    match functions {
        0 => found,
        _ => found.seen(Confidence::Now).costs(format!(
            "{functions} hooked functions called in the window: {:.1} for each received frame",
            functions as f64 / frames.max(1) as f64
        )),
    }
}

pub(super) fn conntrack(view: &Evidence, notes: &mut Notes<'_>) {
    let count_file = "net/netfilter/nf_conntrack_count";
    let count: u64 = view.sysctl(count_file).and_then(|text| text.parse().ok()).unwrap_or(0);
    let chains = notes.ask(view.system.within(net::chains)).unwrap_or_default();
    let tracking: Vec<_> = chains
        .iter()
        .filter(|chain| {
            chain.expressions.iter().any(|e| matches!(e.as_str(), "ct" | "nat" | "masq" | "redir"))
        })
        .collect();
    let hooks = sys::bpf::hook_functions(view.system.netns()).unwrap_or_default();
    let hooked: Vec<_> = hooks.iter().filter(|hook| hook.function.contains("conntrack")).collect();
    if count == 0 && tracking.is_empty() && hooked.is_empty() {
        return;
    }
    let mut found = finding(Severity::Medium, "connections of all packets are tracked")
        .read(format!("/proc/sys/{count_file}"), count.to_string())
        .because(
            "each packet is looked up in a table of connections, and each new flow gets an entry \
             (Documentation/networking/nf_conntrack-sysctl.rst)",
        )
        .effect("less CPU time for each packet, most for short flows")
        .risk("rules with `ct state` and address translation need it")
        .change(
            "exclude hot flows: `nft add rule ip raw prerouting udp dport PORT notrack`, in a chain \
             of priority raw",
            "nft delete rule with its handle",
        );
    for chain in tracking {
        found = found.read(
            format!("nftables: {} {} {}", chain.family, chain.table, chain.name),
            "rules with ct or nat",
        );
    }
    for hook in hooked {
        found = found.read("hooks of the namespace (BPF iterator)", hook.to_string());
    }
    let max: u64 =
        view.sysctl("net/netfilter/nf_conntrack_max").and_then(|t| t.parse().ok()).unwrap_or(0);
    if max > 0 && count * 10 >= max * 9 {
        found.severity = Severity::High;
        found = found.read("/proc/sys/net/netfilter/nf_conntrack_max", max.to_string());
    }
    notes.find(found);
}
