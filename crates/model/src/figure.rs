//! Figures of an arm as an outcome states them: verdict, distribution and failed trials.

use serde::{Deserialize, Serialize};

/// Verdict on one metric of one arm against the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval is clear of 1 on the good side, and the p-value, corrected for the number of
    /// verdicts of the run, is below 0.05.
    Better,
    /// The same on the bad side.
    Worse,
    /// The interval lies within the run's resolution.
    NoDifferenceShown,
    /// The interval is too wide for a verdict.
    Inconclusive,
    /// The run did not reach its planned end, and the figures do not hold at every look.
    Exploratory,
    /// A switch of the arm had no effect here, regardless of the figures.
    NotEffective,
    /// The arm cannot run here.
    Unsupported,
    /// The figure would be misleading (loss, too few samples) and is left out.
    Refused,
}

impl Verdict {
    /// True for better and worse.
    pub fn differs(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse)
    }
}

impl From<stats::Verdict> for Verdict {
    fn from(verdict: stats::Verdict) -> Self {
        match verdict {
            stats::Verdict::Better => Verdict::Better,
            stats::Verdict::Worse => Verdict::Worse,
            stats::Verdict::NoDifferenceShown => Verdict::NoDifferenceShown,
            stats::Verdict::Inconclusive => Verdict::Inconclusive,
            stats::Verdict::Exploratory => Verdict::Exploratory,
        }
    }
}

/// A latency distribution, pooled over an arm's trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Smallest, nanoseconds.
    pub min_ns: u64,
    /// Mean of the samples, nanoseconds; absent in results of versions that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<u64>,
    /// Largest, nanoseconds.
    pub max_ns: u64,
    /// (quantile, nanoseconds), ascending; only quantiles with enough samples beyond them.
    pub quantiles: Vec<(f64, u64)>,
}

/// Failed trials of an arm beside those of both baselines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reliability {
    /// Failed trials of the arm.
    pub failed: u32,
    /// All its trials.
    pub trials: u32,
    /// Failed trials of both baselines.
    pub baseline_failed: u32,
    /// All their trials.
    pub baseline_trials: u32,
    /// Two-sided p-value of equal rates (Fisher's exact test).
    pub p: f64,
    /// `p` corrected for all verdicts of the run (Holm).
    pub p_adjusted: f64,
    /// True if the arm is shown to fail more often than the baseline.
    pub fails_more: bool,
}
