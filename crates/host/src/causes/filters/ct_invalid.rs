//! Packets that belong to no tracked connection are not translated, and reset it.

use crate::causes::Cause;
use crate::causes::evidence::Evidence;
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::nftables::{Expression, Ruleset};

use super::rules::{drops_at, is_of_invalid};

/// Resets within the window from which they are of such packets.
const RESETS: u64 = 3;

pub(super) const CAUSE: Cause = Cause {
    title: "A packet outside the tracked window is not translated, and the host answers it with a reset",
    symptom: "long transfers through address translation (containers, pods, a gateway) end with \"connection reset by peer\" \
              at random, more often under load or with a slow reader; the same transfer without translation works",
    evidence: "invalid of /proc/net/stat/nf_conntrack and TcpOutRsts grow together; there are rules that translate, and none \
               that drops ct state invalid",
    remedy: "drop ct state invalid in the input and forward chains, or net.netfilter.nf_conntrack_tcp_be_liberal=1",
    undo: "delete the rule; 0",
    counters: &["nf_conntrack invalid"],
    references: &[
        "https://docs.kernel.org/networking/nf_conntrack-sysctl.html",
        "https://github.com/kubernetes/kubernetes/issues/74839",
        "https://github.com/moby/libnetwork/issues/1090",
    ],
    is_of_forwarding: true,
    ..Cause::new("ct-invalid", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    let invalid = window.sum(&["nf_conntrack invalid"]);
    if invalid.total == 0 {
        return;
    }
    let Some(rules) = notes.section(evidence.rules()) else { return };
    if !translates(rules) || is_dropped(rules) {
        // Without translation, such a packet reaches its socket all the same.
        return;
    }
    let resets = window.sum(&["TcpOutRsts"]);
    let reset = window.losses(0, invalid.now.min(resets.now));
    // Strays and scans alone are not enough.
    let is_now = reset.now >= RESETS;
    let severity = if is_now { Severity::High } else { Severity::Low };
    let what = if is_now {
        format!(
            "{}: they are not translated, and the host answers them with a reset that ends the connection ({} resets)",
            invalid.sentence("packets belonged to no tracked connection"),
            resets.now
        )
    } else {
        format!(
            "{} packets since boot belonged to no tracked connection and were not translated: connections may have been reset",
            invalid.total
        )
    };
    let counted = finding(severity, what).counted(if is_now { reset } else { invalid }, "packets");
    let liberal = "net.netfilter.nf_conntrack_tcp_be_liberal";
    let prefix = evidence.prefix();
    notes.find(
        counted
        .seen(if is_now { Confidence::Now } else { Confidence::Before })
        .read("/proc/net/stat/nf_conntrack: invalid", invalid.evidence())
        .read("/proc/net/snmp: Tcp OutRsts", resets.evidence())
        .read("nftables: rules with `ct state invalid drop`", "none")
        .because(
            "a segment outside of the window that tracking knows is invalid: it keeps the outer address, the host has no \
             socket for it, and its reset ends a healthy connection (Documentation/networking/nf_conntrack-sysctl.rst, \
             nf_conntrack_tcp_be_liberal)",
        )
        .effect("connections survive late and repeated segments")
        .risk("segments outside of the window are forwarded; a rule that drops them instead breaks hosts with two paths")
        .change(format!("{prefix}sysctl -w {liberal}=1"), format!("{prefix}sysctl -w {liberal}=0")),
    );
}

fn translates(rules: &Ruleset) -> bool {
    rules
        .chains
        .iter()
        .flat_map(|chain| &chain.rules)
        .any(|rule| rule.expressions.iter().any(|one| matches!(one, Expression::Translate { .. })))
}

/// A rule drops such packets before a socket is looked up.
fn is_dropped(rules: &Ruleset) -> bool {
    ["prerouting", "input"]
        .iter()
        .flat_map(|hook| drops_at(rules, hook))
        .any(|(_, rule)| rule.is_some_and(is_of_invalid))
}
