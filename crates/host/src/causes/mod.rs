//! The library of causes: why packets are lost, late, slow, reordered or refused, and the remedy.
//!
//! A [`Cause`] is data and a check. The check examines an [`Evidence`] and reports findings: evidence with its
//! source, the reason, the cost, the change, its risk and how to undo it. `doctor`, `explain`, `feed listen` and
//! `prove` ask the same library, so that a cause reads the same everywhere.
//!
//! No check changes a setting. One that cannot run says why; missing data is never reported as healthy. A false alarm
//! is a defect like a miss: severity follows from what was seen to happen.
//!
//! To add a cause: a file in the folder of its group, a line in the list of the group, and a test in
//! `tests/causes` that plants it, with a twin that stays silent.

mod addresses;
mod cloud;
mod cpu;
mod evidence;
mod filters;
mod finding;
mod links;
mod mtu;
mod offloads;
mod process;
mod tcp;
mod tunnels;
mod udp;

pub use udp::{GroupArrivals, GroupQuestion, of_group};

use crate::generated::Plain;
pub use evidence::{Evidence, Losses, Sample, Window};
pub(crate) use evidence::{Owners, counters_here};
pub use finding::{
    Confidence, DoctorReport, Fact, Finding, FindingEvidence, FindingWorth, Notes, Severity, Unseen,
};

/// A known cause, with the texts of its documentation.
#[derive(Debug)]
pub struct Cause {
    /// Name in findings, links and tests: lower case with hyphens.
    pub id: &'static str,
    /// The cause as one clause, without a full stop.
    pub title: &'static str,
    /// Symptom as users tell it.
    pub symptom: &'static str,
    /// Counters, settings and files that prove it.
    pub evidence: &'static str,
    pub remedy: &'static str,
    pub undo: &'static str,
    /// Counters of the kernel that it raises, as `nstat` names them, or as in [`Sample::counters`].
    pub counters: &'static [&'static str],
    /// Reasons of `enum skb_drop_reason` that it gives, without their prefix.
    pub reasons: &'static [&'static str],
    /// Kernel documentation, manuals and public cases.
    pub references: &'static [&'static str],
    /// It applies to packets that are forwarded by route, bridge or tunnel, and not only to those of programs.
    pub is_of_forwarding: bool,
    /// Subject that the evidence has to be about.
    pub subject: CauseSubject,
    pub(crate) check: fn(&Evidence, &mut Notes<'_>),
}

/// Subject that a cause is looked for on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CauseSubject {
    /// The host or the namespace: always.
    Host,
    /// A group of multicast that a member does not get: the evidence is a tap's.
    Group,
    /// A program.
    Program,
}

impl Cause {
    /// A cause without texts.
    const fn new(id: &'static str, check: fn(&Evidence, &mut Notes<'_>)) -> Self {
        Cause {
            id,
            title: "",
            symptom: "",
            evidence: "",
            remedy: "",
            undo: "",
            counters: &[],
            reasons: &[],
            references: &[],
            is_of_forwarding: false,
            subject: CauseSubject::Host,
            check,
        }
    }
}

/// Source of facts, in place of a cause: the observer.
const OBSERVER: &str = "observer";

/// Groups with their causes, in the order of the documentation.
pub const GROUPS: [(&str, &[Cause]); 11] = [
    ("TCP and sockets", tcp::CAUSES),
    ("UDP and multicast", udp::CAUSES),
    ("Filters, NAT and connection tracking", filters::CAUSES),
    ("Addresses, neighbours, routes", addresses::CAUSES),
    ("Path MTU", mtu::CAUSES),
    ("Tunnels", tunnels::CAUSES),
    ("Offloads and merging", offloads::CAUSES),
    ("Links and queues", links::CAUSES),
    ("CPU, interrupts, scheduling", cpu::CAUSES),
    ("The process", process::CAUSES),
    ("Cloud and virtual machines", cloud::CAUSES),
];

pub fn causes() -> impl Iterator<Item = &'static Cause> {
    GROUPS.iter().flat_map(|(_, causes)| causes.iter())
}

/// The cause with an id.
pub fn cause(id: &str) -> Option<&'static Cause> {
    causes().find(|cause| cause.id == id)
}

/// The first cause that gives a drop reason.
///
/// - `reason`: name of `enum skb_drop_reason` without its prefix.
pub fn of_reason(reason: &str) -> Option<&'static Cause> {
    causes().find(|cause| cause.reasons.contains(&reason))
}

/// Looks for all causes.
pub fn examine(evidence: &Evidence) -> DoctorReport {
    run(evidence, causes())
}

/// Looks for the causes that apply to forwarded packets.
pub fn examine_forwarding(evidence: &Evidence) -> DoctorReport {
    run(evidence, causes().filter(|cause| cause.is_of_forwarding))
}

/// Looks for the causes that counters or drop reasons show, and not for settings: for one who watches.
pub fn examine_counted(evidence: &Evidence) -> DoctorReport {
    examine_for(evidence, |cause: &Cause| !cause.counters.is_empty() || !cause.reasons.is_empty())
}

/// Looks for some causes.
pub fn examine_for(evidence: &Evidence, wanted: impl Fn(&Cause) -> bool) -> DoctorReport {
    run(evidence, causes().filter(|cause| wanted(cause)))
}

fn has_subject(evidence: &Evidence, cause: &Cause) -> bool {
    match cause.subject {
        CauseSubject::Host => true,
        CauseSubject::Group => evidence.is_question(),
        CauseSubject::Program => evidence.program.is_some(),
    }
}

fn run(evidence: &Evidence, causes: impl Iterator<Item = &'static Cause>) -> DoctorReport {
    let mut report = DoctorReport::default();
    for cause in causes.filter(|cause| has_subject(evidence, cause)) {
        let before = (report.findings.len(), report.unseen.len());
        (cause.check)(evidence, &mut Notes { cause: cause.id, report: &mut report });
        if (report.findings.len(), report.unseen.len()) == before {
            report.passed.push(cause.id);
        }
    }
    if let Some(observed) = &evidence.observed {
        let fact = |text| Fact { cause: OBSERVER, text };
        report.facts.extend(observed.lines().into_iter().map(fact));
        let unseen =
            |why: &String| Unseen { cause: OBSERVER, why: format!("not seen here: {why}") };
        report.unseen.extend(observed.unseen.iter().map(unseen));
        report.observed = Some(observed.clone());
    }
    report
        .findings
        .sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.confidence)));
    let names: Vec<&str> = evidence.links.values().map(|link| link.name.as_str()).collect();
    for finding in &mut report.findings {
        finding.change = without_odd_names(&finding.change, &names);
        finding.undo = without_odd_names(&finding.undo, &names);
    }
    report
}

/// A command without names of interfaces in which a shell would find more than a word, such as `a;reboot`: commands are
/// copied, and the program that made the interface may be a stranger's.
fn without_odd_names(command: &str, names: &[&str]) -> String {
    let mut odd: Vec<&&str> = names
        .iter()
        .filter(|name| Plain::word(name).is_none() && command.contains(**name))
        .collect();
    // A name may be a part of another one.
    odd.sort_by_key(|name| std::cmp::Reverse(name.len()));
    if odd.is_empty() {
        return command.to_owned();
    }
    let text = odd.iter().fold(command.to_owned(), |text, name| text.replace(**name, "INTERFACE"));
    format!("{text}   (INTERFACE: rename it first to letters, digits, '.', '_' and '-')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_interface_is_no_command_in_the_text_that_a_user_copies() {
        let names = ["eth0", "a;reboot", "a;", "$(x)"];
        let command = "ip netns exec b sh -c 'echo 1 > /sys/class/net/a;reboot/mtu'";
        let shown = without_odd_names(command, &names);
        assert!(
            shown.starts_with("ip netns exec b sh -c 'echo 1 > /sys/class/net/INTERFACE/mtu'   ("),
            "{shown}"
        );
        assert!(shown.contains("rename it"), "{shown}");
        let plain = "ethtool -K eth0 gro on";
        assert_eq!(without_odd_names(plain, &names), plain);
        assert!(!without_odd_names("ethtool -K $(x) gro on", &names).contains("$("));
    }

    #[test]
    fn every_cause_is_described_and_has_a_name_of_its_own() {
        let mut ids = std::collections::BTreeSet::new();
        for cause in causes() {
            assert!(ids.insert(cause.id), "{} is there twice", cause.id);
            let texts = [cause.title, cause.symptom, cause.evidence, cause.remedy, cause.undo];
            assert!(texts.iter().all(|text| !text.is_empty()), "{} lacks a text", cause.id);
            assert!(!cause.title.ends_with('.') && !cause.references.is_empty(), "{}", cause.id);
        }
    }
}
