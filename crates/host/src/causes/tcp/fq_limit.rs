//! Queues of the discipline fq whose limit for one flow is too small.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Window};
use crate::causes::finding::{Finding, Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The queueing discipline fq drops packets of flows that have more than flow_limit in it",
    symptom: "Since pacing (BBR, fq) is on, busy hosts drop what they send: retransmissions to far ends on clean \
              paths, lost UDP datagrams of one sender, and `dropped` of `tc -s qdisc`.",
    evidence: "`flows_plimit` of `tc -s qdisc show dev IF` for each fq, with its flow_limit (100 packets by \
               default); drop reason FQ_FLOW_LIMIT.",
    remedy: "`tc qdisc change dev IF ... fq flow_limit 1000`.",
    undo: "`tc qdisc change dev IF ... fq flow_limit 100`.",
    counters: &["fq IF flows_plimit"],
    reasons: &["FQ_FLOW_LIMIT"],
    references: &["tc-fq(8), flow_limit", "cilium/cilium#29083", "PhirePhly/micromirrors#11"],
    is_of_forwarding: true,
    ..Cause::new("fq-limit", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(evidence) else { return };
    for link in evidence.interfaces() {
        if let Some(found) = judge(window, &link.name, &evidence.prefix()) {
            notes.find(found);
        }
    }
    let paced = window.after.tcp.iter().filter(|one| one.congestion == "bbr").count();
    let fq = window.of_prefix("fq ").any(|(name, _)| name.ends_with("flow_limit"));
    if paced > 0 && !fq {
        notes.fact(format!(
            "{paced} sockets use bbr and no interface has fq: timers of the sockets pace them, which costs CPU time"
        ));
    }
}

fn judge(window: &Window, link: &str, prefix: &str) -> Option<Finding> {
    let dropped = window.sum(&[&format!("fq {link} flows_plimit")]);
    if dropped.total == 0 {
        return None;
    }
    let limit = window.latest(&format!("fq {link} flow_limit")).unwrap_or(100);
    let set = |limit: u64| {
        format!(
            "{prefix}tc qdisc change dev {link} PARENT fq flow_limit {limit}, for each fq of `{prefix}tc qdisc show dev {link}`"
        )
    };
    let what =
        format!("packets were dropped by fq of {link} because their flow had {limit} in its queue");
    Some(
        finding(dropped.severity(), dropped.sentence(&what))
            .counted(dropped, "packets")
            .read(format!("tc -s qdisc show dev {link}: fq, flows_plimit"), dropped.evidence())
            .read(format!("tc qdisc show dev {link}: fq, flow_limit"), limit.to_string())
            .because(
                "fq holds packets of a paced flow until their time and drops those above flow_limit; one flow of many \
                 packets, such as a tunnel or UDP without GSO, reaches it soon (tc-fq(8))",
            )
            .effect("bursts of a flow are sent, in their pace")
            .risk("a longer queue of one flow, up to the discipline's limit of 10,000 packets")
            .change(set(limit.saturating_mul(10)), set(limit)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::Severity;

    #[test]
    fn drops_of_a_flow_are_named_with_the_limit() {
        let counters = [("fq eth0 flows_plimit", 5, 1748), ("fq eth0 flow_limit", 100, 100)];
        let found = judge(&Window::with_counters(&counters), "eth0", "").unwrap();
        assert_eq!(found.severity, Severity::High);
        assert!(found.what.contains("had 100 in its queue"), "{}", found.what);
        assert!(found.change.contains("fq flow_limit 1000"), "{}", found.change);
        let none = [("fq eth0 flows_plimit", 0, 0), ("fq eth0 flow_limit", 100, 100)];
        assert_eq!(judge(&Window::with_counters(&none), "eth0", ""), None);
    }
}
