//! Netfilter: chains that packets pass, and connection tracking.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Finding, Notes, Severity, finding};
use crate::net;
use crate::net::nftables::Expression;

pub(super) const HOOKS: Cause = Cause {
    title: "Packets pass hooks of netfilter without a rule",
    symptom: "each packet costs some CPU time more than on a host without a firewall, although no rule is there",
    evidence: "base chains of nftables without rules; functions that are hooked in the namespace",
    remedy: "delete the empty tables",
    undo: "nft add table, and its chains",
    references: &["https://man7.org/linux/man-pages/man8/nft.8.html"],
    is_of_forwarding: true,
    ..Cause::new("hooks", hooks)
};

pub(super) const CONNTRACK: Cause = Cause {
    title: "Connections of all packets are tracked",
    symptom: "each packet costs a look-up, and each new flow an entry; most noticed with many short flows",
    evidence: "entries in nf_conntrack_count, rules with ct or nat, functions of nf_conntrack that are hooked",
    remedy: "notrack for hot flows that need no translation",
    undo: "nft delete rule with its handle",
    references: &["https://docs.kernel.org/networking/nf_conntrack-sysctl.html"],
    is_of_forwarding: true,
    ..Cause::new("conntrack", conntrack)
};

fn hooks(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(rules) = notes.section(view.rules()) else { return };
    let chains = &rules.chains;
    let hooked: Vec<_> =
        chains.iter().filter_map(|chain| Some((chain, chain.base.as_ref()?))).collect();
    let functions = view.hook_functions().unwrap_or_else(|why| {
        notes.unseen(format!("names of hooked functions: {why}"));
        &[]
    });
    let has_rules = chains.iter().any(|chain| !chain.rules.is_empty());
    let named: Vec<String> = functions.iter().map(|hook| hook.to_string()).collect();
    if hooked.is_empty() && named.is_empty() {
        return;
    }
    if !has_rules && !hooked.is_empty() {
        let mut found = finding(Severity::Low, "packets pass firewall chains without a rule")
            .because("each packet enters them without any effect (nft(8))")
            .effect("saves some CPU time for each packet")
            .change("nft delete table FAMILY TABLE", "nft add table, and its chains");
        for (chain, base) in hooked {
            let name = format!("nftables: {} {} {}", chain.family, chain.table, chain.name);
            found = found.read(name, format!("hook {}", base.hook));
        }
        if !named.is_empty() {
            found = found.read("hooks of the namespace (BPF iterator)", named.join(", "));
        }
        notes.find(counted(view, found));
    } else if !named.is_empty() {
        notes.fact(format!("hooked functions: {}", named.join(", ")));
    }
}

/// Adds the runs of hooks that the observer counted.
fn counted(view: &Evidence, mut found: Finding) -> Finding {
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

fn conntrack(view: &Evidence, notes: &mut Notes<'_>) {
    let count_file = "net/netfilter/nf_conntrack_count";
    let count = view.number(count_file).unwrap_or(0);
    let rules = notes.section(view.rules());
    let chains = rules.map_or(&[][..], |rules| rules.chains.as_slice());
    let tracks = |one: &Expression| {
        matches!(one, Expression::ConnectionState { .. } | Expression::Translate { .. })
    };
    let tracking: Vec<_> = chains
        .iter()
        .filter(|chain| chain.rules.iter().flat_map(|rule| &rule.expressions).any(tracks))
        .collect();
    let hooks = view.hook_functions().unwrap_or_default();
    let hooked: Vec<_> = hooks.iter().filter(|hook| hook.function.contains("conntrack")).collect();
    if count > net::CONNECTIONS_MAX as u64 {
        notes.fact(format!(
            "of {count} tracked connections, {} were examined",
            net::CONNECTIONS_MAX
        ));
    }
    if count == 0 && tracking.is_empty() && hooked.is_empty() {
        return;
    }
    // A purpose was named that each packet's cost matters for.
    let severity = if view.profile.is_some() { Severity::Medium } else { Severity::Low };
    let mut found = finding(severity, "connections of all packets are tracked")
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
    notes.find(found);
}
