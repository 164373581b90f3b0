//! Flows that share one hash, so that nothing can spread them.

use crate::causes::Cause;
use crate::causes::evidence::{Evidence, has_constant_hash};
use crate::causes::finding::{Confidence, Notes, Severity, finding};
use crate::net::ethtool;
use crate::tune::Target;

pub(super) const CAUSE: Cause = Cause {
    title: "All flows have the same flow hash",
    symptom: "RPS or more queues are set, and one CPU still does all the work",
    evidence: "distinct flows against distinct values of skb->hash, counted by the observer (`doctor --observe 5s`)",
    remedy: "switch off the card's hash, so that the kernel computes one (`ethtool -K IF rxhash off`); or remove the \
             tc or XDP program that sets it",
    undo: "`ethtool -K IF rxhash on`; attach the program again",
    references: &[
        "Documentation/networking/scaling.rst",
        "https://man7.org/linux/man-pages/man7/bpf-helpers.7.html (bpf_set_hash)",
    ],
    is_of_forwarding: true,
    ..Cause::new("constant-hash", check)
};

fn check(evidence: &Evidence, notes: &mut Notes<'_>) {
    let mut seen = Vec::new();
    for link in evidence.interfaces() {
        let Some(counts) = evidence.observed_at(link.index) else { continue };
        for (direction, verb) in [(&counts.received, "receives"), (&counts.sent, "sends")] {
            if has_constant_hash(direction) {
                seen.push((link, direction, verb));
            }
        }
    }
    // Where frames arrive is nearer to the culprit than where they leave.
    seen.sort_by_key(|(_, _, verb)| *verb);
    let Some((link, direction, verb)) = seen.first() else { return };
    let hashes = match direction.hashes_count {
        1 => "1 hash".to_owned(),
        count => format!("{count} hashes"),
    };
    let what =
        format!("the {} flows that {} {verb} have {hashes}", direction.flows_count, link.name);
    let mut found = finding(Severity::Medium, what)
        .seen(Confidence::Now)
        .costs(format!("{} frames in the window that nothing can spread", direction.hashed_count));
    for (link, direction, verb) in &seen {
        found = found.read(format!("skb->hash (observer): {} {verb}", link.name), direction.text());
    }
    let offloads = evidence.system.within(|| ethtool::offloads(link.index)).unwrap_or_default();
    let by_card = offloads.get("rx-hashing").is_some_and(|hash| hash.is_offered && hash.is_on);
    found = found
        .because(
            "RPS, XPS, transmit queues and the source ports of tunnels are chosen by the hash \
             (Documentation/networking/scaling.rst)",
        )
        .effect("flows spread over CPUs, queues and the paths of the network again");
    found = if by_card && *verb == "receives" {
        let command = format!("{}ethtool -K {} rxhash", evidence.prefix(), link.name);
        found
            .risk("the kernel computes the hash of each frame")
            .change(format!("{command} off"), format!("{command} on"))
            .setting("rx-hash", &Target::Interface(link.name.clone()), "off")
    } else {
        let show = format!("{}tc filter show dev {}", evidence.prefix(), link.name);
        found.risk("the program may have another purpose too").change(
            format!(
                "remove the program or driver that sets it: `{show} ingress`, `{show} egress` and `bpftool net` list \
                 programs, also at the sender of these frames"
            ),
            "attach the program again",
        )
    };
    notes.find(found);
}
