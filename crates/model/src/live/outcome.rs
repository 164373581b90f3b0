//! Outcome of an on/off experiment.

use serde::{Deserialize, Serialize};

use super::{LiveFigure, LiveForecast};
use crate::{CountDifference, Verdict};

/// On over off: the median over the pairs, and the interval that holds at every look.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveRatio {
    /// Median of the pairs' ratios.
    pub median: f64,
    /// Lower end of its 95 % interval, corrected for the number of judged figures; `None` if the pairs exclude nothing there.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Verdict on one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveVerdict {
    /// Name of the figure.
    pub figure: String,
    /// Better, worse, no difference shown (less than the resolution), or inconclusive.
    pub verdict: Verdict,
    /// Pairs that have the figure.
    pub pairs: u32,
    /// On over off; `None` of counts, and without a finite median.
    pub ratio: Option<LiveRatio>,
    /// Of counts, in place of `ratio`: on less off, in events per request; its middle is the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<CountDifference>,
    /// Largest evidence against "no difference" at a look so far; 20 for each judged figure decides.
    pub evidence: f64,
    /// Evidence that decides: 20 times the number of judged figures.
    pub evidence_needed: f64,
    /// Time from the first switch to the verdict; `None` if inconclusive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_ns: Option<u64>,
    /// Longest period at which the verdict was shown: it says nothing of effects that take longer to show.
    pub within_ns: u64,
}

/// Answer of the long periods to a "better".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SecondScale {
    /// Better there, too (signed ranks, one-sided, 5 %), by at least half as much.
    Confirmed,
    /// Neither.
    NotShown,
    /// Less good there than in short periods (signed ranks, one-sided, 1 %): a passing effect of the switch.
    Contradicted,
}

/// A figure in long periods.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveSecondScale {
    /// Length of these periods.
    pub period_ns: u64,
    /// Pairs of them that have the figure.
    pub pairs: u32,
    /// On over off, median; `None` of counts, and without a finite median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Answer to the verdict of the short periods.
    pub answer: SecondScale,
}

/// Signs of an effect that outlasts the switch back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveCarryOver {
    /// Name of the figure.
    pub figure: String,
    /// p-value of equal differences in the first and the second half of the periods (signed ranks), corrected for the
    /// number of figures; `None` with too few pairs.
    pub half_p: Option<f64>,
    /// The same of pairs whose first period follows its own arm, and those whose first period follows the other one.
    pub predecessor_p: Option<f64>,
    /// Long periods; `None` if there were none, or the figure was not better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_scale: Option<LiveSecondScale>,
}

/// Reason not to trust a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "doubt")]
pub enum LiveDoubt {
    /// The setting acts differently in the first half of a period.
    Halves {
        /// Figure that shows it.
        figure: String,
    },
    /// The arm before moves the figures of a period.
    Predecessor {
        /// Figure that shows it.
        figure: String,
    },
    /// Long periods contradict a "better" of the short ones.
    SecondScale {
        /// Figure that shows it.
        figure: String,
    },
}

/// Periods that a guard ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TripCount {
    /// On-periods.
    pub on: u32,
    /// Off-periods, which the same rules watch.
    pub off: u32,
}

/// Reason for the end of an on/off experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "end")]
pub enum LiveEnd {
    /// Every figure was decided.
    Decided,
    /// The time was up.
    TimeUp,
    /// Five on-periods tripped the guard, and no off-period did.
    Tripped,
    /// The soft guard showed a figure to be worse by more than its factor.
    SoftGuard {
        /// Figure that shows it.
        figure: String,
    },
    /// The user or an error stopped it.
    Interrupted,
    /// It goes on, or was killed.
    Unfinished,
}

/// Outcome of an on/off experiment; valid at every look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveOutcome {
    /// Judged figures, the primary one first.
    pub figures: Vec<LiveFigure>,
    /// By figure.
    pub verdicts: Vec<LiveVerdict>,
    /// Resolution, a ratio above 1.
    pub resolve: f64,
    /// Seed of the coin.
    pub seed: u64,
    /// Finished pairs of short periods.
    pub pairs: u32,
    /// Those left out because a period had no request, by the arm without.
    pub silent: TripCount,
    /// Length of a short period, its wash-out included.
    pub period_ns: u64,
    /// Wash-out of a short period.
    pub washout_ns: u64,
    /// Forecast after the baseline.
    pub forecast: LiveForecast,
    /// By figure.
    pub carry_over: Vec<LiveCarryOver>,
    /// True without a doubt.
    pub trusted: bool,
    /// Reasons not to trust the verdicts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<LiveDoubt>,
    /// Periods that a guard ended, of both stages.
    pub trips: TripCount,
    /// Reason for the end.
    pub end: LiveEnd,
}
