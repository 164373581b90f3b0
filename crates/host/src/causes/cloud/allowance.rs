//! Packets that a cloud drops at the limits of an instance.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, Losses, Window};
use crate::causes::finding::{Finding, Notes, finding};

pub(super) const CAUSE: Cause = Cause {
    title: "The cloud drops packets above the limits of the instance",
    symptom: "throughput, packet rate, new connections or DNS answers end at a limit; the host counts no drop",
    evidence: "`ethtool -S` of the card (ena): bw_in_, bw_out_, pps_, conntrack_ and \
               linklocal_allowance_exceeded grow",
    remedy: "a larger instance type, fewer or larger packets, a local cache of DNS for linklocal, fewer tracked \
             connections",
    undo: "the old type",
    counters: &[
        "bw_in_allowance_exceeded",
        "bw_out_allowance_exceeded",
        "pps_allowance_exceeded",
        "conntrack_allowance_exceeded",
        "linklocal_allowance_exceeded",
    ],
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-network-performance-ena.html",
        "https://github.com/SlideRuleEarth/sliderule/issues/518",
    ],
    is_of_forwarding: true,
    ..Cause::new("cloud-allowance", check)
};

/// Limits by the beginning of their counters: what is limited, and the remedy.
const LIMITS: [(&str, &str, &str); 5] = [
    (
        "bw_in",
        "received bytes",
        "an instance type with more bandwidth, or traffic spread over time",
    ),
    (
        "bw_out",
        "sent bytes",
        "an instance type with more bandwidth, or pacing below its limit (fq, SO_MAX_PACING_RATE)",
    ),
    ("pps", "packets a second", "fewer and larger packets, or a larger instance type"),
    (
        "conntrack",
        "tracked connections",
        "security groups that need no tracking, connections that are kept, or a larger type",
    ),
    (
        "linklocal",
        "packets to services of the link (DNS, time, metadata)",
        "a cache of DNS on the host, and fewer queries",
    ),
];

fn check(view: &Evidence, notes: &mut Notes<'_>) {
    let Some(window) = notes.window(view) else { return };
    let machine = super::machine(view);
    for link in view.interfaces().filter(|link| link.kind.is_none()) {
        for found in judge(window, &link.name, machine.as_deref()) {
            notes.find(found);
        }
    }
}

fn judge(window: &Window, name: &str, machine: Option<&str>) -> Vec<Finding> {
    let prefix = format!("ethtool {name} ");
    let exceeded = window.of_prefix(&prefix).filter_map(|(counter, lost)| {
        let kind = counter.strip_suffix("_allowance_exceeded").filter(|_| lost.total > 0)?;
        let limit = LIMITS.iter().find(|(limit, ..)| *limit == kind)?;
        Some(describe(name, counter, *limit, lost, machine))
    });
    exceeded.collect()
}

fn describe(
    name: &str,
    counter: &str,
    (_, limited, remedy): (&str, &str, &str),
    lost: Losses,
    machine: Option<&str>,
) -> Finding {
    let found = finding(
        lost.severity(),
        format!(
            "{} at the cloud's limit of {limited} of this instance ({name})",
            lost.sentence("packets were queued or dropped")
        ),
    )
    .counted(lost, "packets")
    .read(format!("ethtool -S {name}: {counter}"), lost.evidence());
    match machine {
        Some(machine) => found.read("/sys/class/dmi/id: sys_vendor, product_name", machine),
        None => found,
    }
    .because(
        "the hypervisor shapes each instance by its type; bursts use up credits, and what exceeds them is \
         queued and dropped outside of the host (the cloud's documentation of these counters)",
    )
    .effect("packets arrive")
    .risk("cost of a larger instance")
    .change(remedy, "the old instance type or setting")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::finding::Severity;

    #[test]
    fn each_limit_is_named_with_its_remedy() {
        let counters = [
            ("ethtool eth0 bw_in_allowance_exceeded", 100, 3_100),
            ("ethtool eth0 linklocal_allowance_exceeded", 7, 7),
            ("ethtool eth0 pps_allowance_exceeded", 0, 0),
            ("ethtool eth0 conntrack_allowance_available", 5, 90),
        ];
        let found = judge(&Window::with_counters(&counters), "eth0", Some("Amazon EC2 c5.large"));
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].severity, found[1].severity), (Severity::High, Severity::Low));
        assert!(found[0].what.contains("3000 packets") && found[0].what.contains("received bytes"));
        assert!(found[1].change.contains("cache of DNS"), "{}", found[1].change);
        assert!(judge(&Window::with_counters(&counters[2..]), "eth0", None).is_empty());
    }
}
