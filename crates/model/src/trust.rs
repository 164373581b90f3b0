//! Checks of a run's own assumptions, from its own trials.

use serde::{Deserialize, Serialize};

/// Checks of a run's own assumptions; empty for results of versions that did not make them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trust {
    /// Effect of the trial before, by judged metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carry_over: Vec<CarryOver>,
    /// Spread between starts of one program, by judged metric.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<StartSpread>,
    /// Judged metrics whose figures come in coarse steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ticks: Vec<Ticks>,
}

/// Effect of the trial before on a baseline trial: the two baselines of a block, by their predecessor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CarryOver {
    /// Metric.
    pub metric: String,
    /// Arm after which it is seen; `None` for any arm that is not a baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Blocks in which exactly one of the two baselines ran directly after that.
    pub blocks: u32,
    /// That baseline over the other one, median; `None` without such a block, and of counts.
    pub ratio: Option<f64>,
    /// Two-sided p-value of no effect (signed ranks), corrected for the number of arms that were asked for.
    pub p: f64,
    /// True if the effect is shown at the 1 % level: verdicts on this metric are not to be trusted.
    pub flagged: bool,
}

/// Spread between starts of one program, as part of the spread of its trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartSpread {
    /// Metric.
    pub metric: String,
    /// Starts of the arm with the fewest.
    pub starts: u32,
    /// Share of the variance of log figures that is between starts, 0 to 1; `None` with fewer than two starts an arm,
    /// or one trial a start.
    pub share: Option<f64>,
}

/// Step in which the figures of a metric come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ticks {
    /// Metric.
    pub metric: String,
    /// Step, in the unit of the metric.
    pub step: f64,
    /// The step over the baselines' median: the smallest relative difference that the figures can show.
    pub share: f64,
}

impl Trust {
    /// Metrics that the trial before is shown to move.
    pub fn carried_over(&self) -> Vec<&str> {
        let flagged = self.carry_over.iter().filter(|check| check.flagged);
        flagged.map(|check| check.metric.as_str()).collect()
    }

    /// Step of a metric's figures, if it is coarse.
    pub fn ticks_of(&self, metric: &str) -> Option<&Ticks> {
        self.ticks.iter().find(|ticks| ticks.metric == metric)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.carry_over.is_empty() && self.starts.is_empty() && self.ticks.is_empty()
    }
}
