//! Document of a proof on a running service.

use model::live::{LiveBaseline, LiveOutcome, LivePeriodRecord};
use serde::{Deserialize, Serialize};

/// A setting that was switched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveSetting {
    pub knob: String,
    pub target: String,
    /// Value without the plan.
    pub off: String,
    /// Value with the plan.
    pub on: String,
}

/// A figure that this host could not give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveAbsent {
    pub figure: String,
    pub why: String,
}

/// Document of `tune prove --live`: the outcome, and each period as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveProof {
    /// Version of this document.
    pub document: u32,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Start, by RFC 3339.
    pub started: String,
    /// Version of the program.
    pub version: String,
    /// File of the plan.
    pub plan: String,
    /// Digest of the plan.
    pub plan_digest: String,
    pub settings: Vec<LiveSetting>,
    /// The service, such as `port 443`.
    pub service: String,
    pub baseline: LiveBaseline,
    pub outcome: LiveOutcome,
    pub periods: Vec<LivePeriodRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<LiveAbsent>,
    /// Reason why it could not go on, such as a setting that another process changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

impl LiveProof {
    /// Part of an id that tells it from those of other experiments.
    pub const MARK: &str = "-live-";

    /// Reads a stored document. Errors: it is not one of this version.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Length of the run from the first switch on.
    pub fn time_ns(&self) -> u64 {
        self.periods.last().map_or(0, |period| period.end_ns)
    }
}
