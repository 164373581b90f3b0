//! Connection tracking in the packets' way.

use super::{Notes, Scene, Severity, finding};
use crate::net;

pub(super) fn look(scene: &Scene, notes: &mut Notes<'_>) {
    let count_file = "net/netfilter/nf_conntrack_count";
    let count: u64 = scene.sysctl(count_file).and_then(|text| text.parse().ok()).unwrap_or(0);
    let chains = notes.ask(scene.system.within(net::chains)).unwrap_or_default();
    let tracking: Vec<_> = chains
        .iter()
        .filter(|chain| {
            chain.expressions.iter().any(|e| matches!(e.as_str(), "ct" | "nat" | "masq" | "redir"))
        })
        .collect();
    let hooks = sys::bpf::hook_functions(scene.system.netns()).unwrap_or_default();
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
            "take hot flows out: `nft add rule ip raw prerouting udp dport PORT notrack`, in a chain \
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
        scene.sysctl("net/netfilter/nf_conntrack_max").and_then(|t| t.parse().ok()).unwrap_or(0);
    if max > 0 && count * 10 >= max * 9 {
        found.severity = Severity::High;
        found = found.read("/proc/sys/net/netfilter/nf_conntrack_max", max.to_string());
    }
    notes.find(found);
}
