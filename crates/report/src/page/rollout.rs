//! A staged roll-out as text.

use model::Verdict;

use super::LiveRow;
use crate::screen::Tone;
use crate::{units, wording};

/// A roll-out: its stages, hosts and transitions.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutPage {
    pub subject: String,
    /// Id, metric and seed.
    pub caption: String,
    pub findings: Vec<(Tone, String)>,
    pub stages: Vec<RolloutStage>,
    /// Number of the stage and a figure of its live proof.
    pub figures: Vec<(String, LiveRow)>,
    /// Hosts, in the order of their stages.
    pub hosts: Vec<RolloutHost>,
    /// State that began and its reason, oldest first.
    pub steps: Vec<(String, String)>,
    /// Conditions that qualify the result.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RolloutStage {
    /// Number, counted from 1.
    pub name: String,
    pub hosts: String,
    /// Pooled ratio, or that of the only host.
    pub ratio: String,
    pub verdict: String,
    /// Size of the control group, and its drift.
    pub control: String,
    /// Settings of its hosts at the end.
    pub now: String,
    pub tone: Tone,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RolloutHost {
    pub host: String,
    pub stage: String,
    /// With the plan over without it.
    pub ratio: Option<f64>,
    /// The host's own verdict; `None` if it was not proved.
    pub verdict: Option<Verdict>,
    pub why: Option<String>,
}

impl RolloutHost {
    pub(crate) fn ratio(&self) -> String {
        self.ratio.map_or_else(|| "–".into(), units::ratio)
    }

    pub(crate) fn outcome(&self) -> (String, Tone) {
        let text = match (&self.why, self.verdict) {
            (Some(why), _) => why.clone(),
            (None, Some(verdict)) => wording::verdict(verdict).to_owned(),
            (None, None) => "not proved".to_owned(),
        };
        (text, wording::tone(self.verdict))
    }
}
