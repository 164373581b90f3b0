//! Rules of iptables-legacy and of nftables side by side.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, LegacyTable};
use crate::causes::finding::{Notes, Severity, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "Rules in two systems at once: iptables-legacy and nftables",
    symptom: "packets are dropped although the rules that are shown accept them; the other tool shows other rules",
    evidence: "tables of /proc/net/ip_tables_names have rules, and so has `nft list ruleset`",
    remedy: "one system for all rules: flush the other after its rules are saved",
    undo: "iptables-legacy-restore with the saved rules",
    reasons: &["NETFILTER_DROP"],
    references: &[
        "https://wiki.nftables.org/wiki-nftables/index.php/Legacy_xtables_tools",
        "https://github.com/cloudnativelabs/kube-router/issues/1069",
    ],
    is_of_forwarding: true,
    ..Cause::new("two-backends", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let legacy: Vec<&LegacyTable> =
        evidence.legacy_tables().iter().filter(|table| table.rule_count.unwrap_or(0) > 0).collect();
    if legacy.is_empty() {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    let is_of_ip = |family: &str| matches!(family, "ip" | "ip6" | "inet");
    let chains: Vec<_> = rules
        .chains
        .iter()
        .filter(|chain| is_of_ip(chain.family) && !chain.rules.is_empty())
        .collect();
    if chains.is_empty() {
        return;
    }
    let vanished = evidence
        .window()
        .map_or(0, |window| window.vanished_received().now + window.vanished_leaving().now);
    let severity = if vanished > 0 { Severity::Medium } else { Severity::Low };
    let count = |counts: &mut dyn Iterator<Item = usize>| counts.sum::<usize>();
    let legacy_count: u32 = legacy.iter().filter_map(|table| table.rule_count).sum();
    let nft_count = count(&mut chains.iter().map(|chain| chain.rules.len()));
    let lost = match vanished {
        0 => String::new(),
        count => format!(", and {count} packets vanished in them within a second"),
    };
    let mut found = finding(
        severity,
        format!(
            "packets pass two firewalls: {legacy_count} rules of iptables-legacy and {nft_count} of nftables{lost}; one that \
             accepts does not overrule the other"
        ),
    );
    for table in &legacy {
        let version = if table.is_ipv6 { "ip6_tables_names" } else { "ip_tables_names" };
        let count = table.rule_count.unwrap_or(0);
        found =
            found.read(format!("/proc/net/{version}: {}", table.name), format!("{count} rules"));
    }
    for chain in chains.iter().take(5) {
        let name = format!("nftables: {} {} {}", chain.family, chain.table, chain.name);
        found = found.read(name, format!("{} rules", chain.rules.len()));
    }
    let prefix = evidence.prefix();
    notes.find(
        found
            .because(
                "both register hooks of their own, and a packet must be accepted by each \
                 (https://wiki.nftables.org/wiki-nftables/index.php/Legacy_xtables_tools)",
            )
            .effect("one list of rules says what happens")
            .risk("the tool that made the legacy rules may make them again: set its back end, too")
            .change(
                format!(
                    "{prefix}iptables-legacy-save > rules.txt, then {prefix}iptables-legacy -F and -P CHAIN ACCEPT for \
                     each table"
                ),
                format!("{prefix}iptables-legacy-restore < rules.txt"),
            ),
    );
}
