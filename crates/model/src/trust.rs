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
    /// Blocks in which exactly one of the two baselines ran after a variant.
    pub blocks: u32,
    /// A baseline after a variant over one after a baseline, median; `None` without such a block.
    pub ratio: Option<f64>,
    /// Two-sided p-value of no effect (signed ranks).
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
    pub(crate) fn is_empty(&self) -> bool {
        self.carry_over.is_empty() && self.starts.is_empty() && self.ticks.is_empty()
    }
}
