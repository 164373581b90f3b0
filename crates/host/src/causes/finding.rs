//! Findings, and the report that collects them.

use serde::Serialize;

use super::evidence::{Evidence, Losses, Window};
use crate::observer::Observed;
use crate::text::chain;
use crate::tune::{KnobError, Target, WantedSetting};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Has a small or occasional cost.
    Low,
    /// Has a cost for every packet.
    Medium,
    /// Loses packets, or defeats the purpose.
    High,
}

/// How a cause is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// It may happen.
    Possible,
    /// A setting makes it happen as soon as there is traffic for it.
    SetUp,
    /// Counted before the window, since the host, the namespace or the object was there.
    Before,
    /// Seen within the window.
    Now,
}

/// A value and where it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingEvidence {
    /// File, netlink attribute or counter.
    pub source: String,
    pub value: String,
}

/// A cause that was found here.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// Id of the cause.
    pub cause: &'static str,
    pub severity: Severity,
    pub confidence: Confidence,
    /// Summary in one line.
    pub what: String,
    /// Cost as far as it was counted, such as `312 packets a second`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    pub evidence: Vec<FindingEvidence>,
    /// Reason, with its source.
    pub why: &'static str,
    /// Expected effect of the change.
    pub effect: &'static str,
    /// Possible harm of the change.
    pub risk: &'static str,
    /// Command that makes the change.
    pub change: String,
    /// Command that undoes it.
    pub undo: String,
    /// The change as settings of `tune`, which a plan can take; empty if it is none of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<WantedSetting>,
    /// Measured worth of the settings; empty unless they were proved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worth: Vec<FindingWorth>,
}

/// Worth of one setting by one figure, from an interleaved experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FindingWorth {
    /// Id of the knob.
    pub knob: String,
    pub metric: String,
    /// With the setting, over without it.
    pub ratio: f64,
    /// Ends of the 95 % interval.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// `better`, `worse`, `no difference shown` or the reason for no decision.
    pub verdict: String,
}

/// A measurement or note that is not a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fact {
    pub cause: &'static str,
    /// Text with units.
    pub text: String,
}

/// A cause that could not be looked for, or not completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unseen {
    pub cause: &'static str,
    pub why: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DoctorReport {
    /// Sorted by severity, highest first.
    pub findings: Vec<Finding>,
    pub facts: Vec<Fact>,
    pub unseen: Vec<Unseen>,
    /// Causes that were looked for completely and not found.
    pub passed: Vec<&'static str>,
    /// Counts of the observer, if it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<Observed>,
}

impl DoctorReport {
    /// Highest severity of all findings.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Collects the findings of one cause.
#[derive(Debug)]
pub struct Notes<'a> {
    pub(crate) cause: &'static str,
    pub(crate) report: &'a mut DoctorReport,
}

impl Notes<'_> {
    /// Adds a finding; its `cause` is filled in.
    pub(crate) fn find(&mut self, finding: Finding) {
        self.report.findings.push(Finding { cause: self.cause, ..finding });
    }

    pub(crate) fn fact(&mut self, text: String) {
        self.report.facts.push(Fact { cause: self.cause, text });
    }

    pub(crate) fn unseen(&mut self, why: impl Into<String>) {
        let unseen = Unseen { cause: self.cause, why: why.into() };
        if !self.report.unseen.contains(&unseen) {
            self.report.unseen.push(unseen);
        }
    }

    /// The window of counters and sockets; its error is noted as unseen.
    pub(crate) fn window<'e>(&mut self, evidence: &'e Evidence) -> Option<&'e Window> {
        self.section(evidence.window())
    }

    /// Unwraps a section of the evidence; the reason why it cannot be read is noted as unseen.
    pub(crate) fn section<T>(&mut self, section: Result<T, &str>) -> Option<T> {
        section.map_err(|why| self.unseen(why)).ok()
    }

    /// Unwraps an answer; an error is noted as unseen, unless the setting does not exist there.
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

/// Begins a finding; the methods below add its parts.
pub(crate) fn finding(severity: Severity, what: impl Into<String>) -> Finding {
    Finding {
        cause: "",
        severity,
        confidence: Confidence::SetUp,
        what: what.into(),
        cost: None,
        evidence: Vec::new(),
        why: "",
        effect: "",
        risk: "none known",
        change: String::new(),
        undo: String::new(),
        settings: Vec::new(),
        worth: Vec::new(),
    }
}

impl Finding {
    pub(crate) fn read(mut self, source: impl Into<String>, value: impl Into<String>) -> Self {
        self.evidence.push(FindingEvidence { source: source.into(), value: value.into() });
        self
    }

    pub(crate) fn seen(self, confidence: Confidence) -> Self {
        Finding { confidence, ..self }
    }

    /// Confidence and cost of counted losses; [`Losses::severity`] is for the severity.
    ///
    /// - `unit`: plural, such as `packets`.
    pub(crate) fn counted(self, losses: Losses, unit: &str) -> Self {
        let cost = match losses.now {
            0 => format!("{} {unit} in all", losses.total),
            _ => format!("{:.0} {unit} a second", losses.per_second()),
        };
        Finding { confidence: losses.confidence(), cost: Some(cost), ..self }
    }

    /// - `cost`: as in [`Finding::cost`].
    pub(crate) fn costs(self, cost: impl Into<String>) -> Self {
        Finding { cost: Some(cost.into()), ..self }
    }

    pub(crate) fn because(self, why: &'static str) -> Self {
        Finding { why, ..self }
    }

    pub(crate) fn effect(self, effect: &'static str) -> Self {
        Finding { effect, ..self }
    }

    pub(crate) fn risk(self, risk: &'static str) -> Self {
        Finding { risk, ..self }
    }

    pub(crate) fn change(self, change: impl Into<String>, undo: impl Into<String>) -> Self {
        Finding { change: change.into(), undo: undo.into(), ..self }
    }

    /// Adds a setting of the change.
    ///
    /// - `knob`: id of a knob of `tune`.
    pub(crate) fn setting(mut self, knob: &str, target: &Target, value: impl Into<String>) -> Self {
        let (knob, target) = (knob.to_owned(), target.clone());
        self.settings.push(WantedSetting { knob, target, value: value.into() });
        self
    }
}
