//! What slows packets on this host: checks with evidence, and nothing changed.
//!
//! A check looks at a [`Scene`] and says what it found: what, the value read and where, why it
//! matters, what to expect of a change, its risk, the change itself and how it is undone. A check
//! that could not look says why, so that no silence is taken for health.

mod buffers;
mod coalescing;
mod conntrack;
mod cpu;
mod forwarding;
mod hooks;
mod host;
mod interrupts;
mod memory;
mod napi;
mod qdisc;
mod queues;
mod rings;
mod scene;
mod softnet;
mod steering;
mod taps;
mod tunnel;
mod xdp;

pub use scene::Scene;

use serde::Serialize;

use crate::text::chain;
use crate::tune::KnobError;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Costs a little, or sometimes.
    Low,
    /// Costs every packet something.
    Medium,
    /// Loses packets, or makes the purpose impossible.
    High,
}

/// A value and where it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// File, netlink attribute or counter.
    pub source: String,
    /// What it said.
    pub value: String,
}

/// Something that slows packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Check that found it.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in a line.
    pub what: String,
    /// What it was read from.
    pub evidence: Vec<Evidence>,
    /// Why it matters, with its source.
    pub why: &'static str,
    /// What to expect of the change.
    pub effect: &'static str,
    /// What the change may break.
    pub risk: &'static str,
    /// The exact change.
    pub change: String,
    /// How it is undone.
    pub undo: String,
}

/// Something worth knowing that is no fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Check that measured it.
    pub check: &'static str,
    /// What, with its unit.
    pub text: String,
}

/// A check that could not look, or not at everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// The check.
    pub check: &'static str,
    /// Why.
    pub why: String,
}

/// What all checks said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The worst first.
    pub findings: Vec<Finding>,
    /// What was measured beside.
    pub facts: Vec<Fact>,
    /// What could not be seen.
    pub unseen: Vec<Unseen>,
    /// Checks that looked at everything and found nothing.
    pub passed: Vec<&'static str>,
}

impl Report {
    /// Severity of the worst finding.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// What a check writes to.
#[derive(Debug)]
pub struct Notes<'a> {
    check: &'static str,
    report: &'a mut Report,
}

impl Notes<'_> {
    /// Adds a finding; its `check` is filled in.
    pub(crate) fn find(&mut self, finding: Finding) {
        self.report.findings.push(Finding { check: self.check, ..finding });
    }

    pub(crate) fn fact(&mut self, text: String) {
        self.report.facts.push(Fact { check: self.check, text });
    }

    pub(crate) fn unseen(&mut self, why: impl Into<String>) {
        let unseen = Unseen { check: self.check, why: why.into() };
        if !self.report.unseen.contains(&unseen) {
            self.report.unseen.push(unseen);
        }
    }

    /// What an answer says; where there is none, that it could not be seen. What is not offered
    /// is no gap.
    pub(crate) fn ask<T>(&mut self, answer: Result<T, KnobError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) if error.is_absence() => None,
            Err(error) => {
                self.unseen(chain(&error));
                None
            }
        }
    }
}

/// One thing to look at.
///
/// Adding one: a file here, and a line in [`CHECKS`].
struct Check {
    name: &'static str,
    look: fn(&Scene, &mut Notes<'_>),
}

const CHECKS: &[Check] = &[
    Check { name: "receive-steering", look: steering::receive },
    Check { name: "transmit-steering", look: steering::transmit },
    Check { name: "flow-hash", look: steering::flow_hash },
    Check { name: "channels", look: queues::channels },
    Check { name: "rings", look: rings::look },
    Check { name: "coalescing", look: coalescing::look },
    Check { name: "interrupts", look: interrupts::look },
    Check { name: "napi", look: napi::look },
    Check { name: "offloads", look: queues::offloads },
    Check { name: "forwarding", look: forwarding::look },
    Check { name: "tunnel-queues", look: tunnel::queues },
    Check { name: "tunnel-headroom", look: tunnel::headroom },
    Check { name: "tunnel-mtu", look: tunnel::mtu },
    Check { name: "hooks", look: hooks::look },
    Check { name: "conntrack", look: conntrack::look },
    Check { name: "taps", look: taps::look },
    Check { name: "xdp", look: xdp::look },
    Check { name: "qdisc", look: qdisc::look },
    Check { name: "socket-buffers", look: buffers::look },
    Check { name: "softnet", look: softnet::look },
    Check { name: "host-settings", look: host::settings },
    Check { name: "locality", look: host::locality },
    Check { name: "cpu", look: cpu::look },
    Check { name: "memory", look: memory::look },
];

/// Names of all checks.
pub fn checks() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.name)
}

/// Checks of what a packet meets that is forwarded, by route, bridge or tunnel: not those of
/// programs that receive here, nor of the machine at large.
const ON_THE_WAY: [&str; 16] = [
    "receive-steering",
    "transmit-steering",
    "flow-hash",
    "channels",
    "rings",
    "offloads",
    "forwarding",
    "tunnel-queues",
    "tunnel-headroom",
    "tunnel-mtu",
    "hooks",
    "conntrack",
    "taps",
    "xdp",
    "qdisc",
    "softnet",
];

/// Has every check look.
pub fn examine(scene: &Scene) -> Report {
    look(scene, CHECKS.iter())
}

/// Has those checks look that matter to forwarded packets.
pub fn examine_forwarding(scene: &Scene) -> Report {
    look(scene, CHECKS.iter().filter(|check| ON_THE_WAY.contains(&check.name)))
}

fn look<'a>(scene: &Scene, checks: impl Iterator<Item = &'a Check>) -> Report {
    let mut report = Report::default();
    for check in checks {
        let before = (report.findings.len(), report.unseen.len());
        (check.look)(scene, &mut Notes { check: check.name, report: &mut report });
        if (report.findings.len(), report.unseen.len()) == before {
            report.passed.push(check.name);
        }
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    report
}

/// A finding without its parts, to be filled in.
fn finding(severity: Severity, what: impl Into<String>) -> Finding {
    Finding {
        check: "",
        severity,
        what: what.into(),
        evidence: Vec::new(),
        why: "",
        effect: "",
        risk: "none known",
        change: String::new(),
        undo: String::new(),
    }
}

impl Finding {
    fn read(mut self, source: impl Into<String>, value: impl Into<String>) -> Self {
        self.evidence.push(Evidence { source: source.into(), value: value.into() });
        self
    }

    fn because(self, why: &'static str) -> Self {
        Finding { why, ..self }
    }

    fn effect(self, effect: &'static str) -> Self {
        Finding { effect, ..self }
    }

    fn risk(self, risk: &'static str) -> Self {
        Finding { risk, ..self }
    }

    fn change(self, change: impl Into<String>, undo: impl Into<String>) -> Self {
        Finding { change: change.into(), undo: undo.into(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_of_forwarding_exists() {
        for name in ON_THE_WAY {
            assert!(checks().any(|check| check == name), "{name}");
        }
    }
}
