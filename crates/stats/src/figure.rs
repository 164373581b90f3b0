//! Figures of an arm against the baseline.

/// Direction in which a metric improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// Verdict on one figure of one arm against the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is clear of no difference on the good side, and the p-value, corrected for the number of
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
}

impl Verdict {
    /// True for better and worse.
    pub fn differs(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse)
    }
}

/// Noise floor of one metric: the A/A pair's interval, as ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Floor {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Counts of an arm less those of its reference, in events per trial.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct CountDifference {
    /// Mean of the differences.
    pub mean: f64,
    /// Lower end of its 95 % interval; `None` with too few blocks.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}
