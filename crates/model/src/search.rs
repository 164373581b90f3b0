//! Result of a search for the best set of switches.

use serde::{Deserialize, Serialize};

use crate::Verdict;

/// The search behind the arms of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Search {
    /// The set that is recommended, in the path's order.
    pub set: Vec<String>,
    /// Metric that decided.
    pub metric: String,
    /// Sets that were tried, pairs included.
    pub candidates: u32,
    /// Trials of the search; none of them counts in the experiment.
    pub trials: u32,
    /// Switches added and dropped, in order.
    pub steps: Vec<SearchStep>,
    /// True if the time was over before no further switch helped.
    pub out_of_time: bool,
    /// Pairs of other switches that were tried at once, after none of them helped by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<[String; 2]>,
    /// Pairs of the switches beside the set that were never tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried_pairs: Vec<[String; 2]>,
}

/// One change of the set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchStep {
    /// The switch; of a pair that was added at once both, joined by `+`.
    pub switch: String,
    /// True if it was added, false if it was dropped, because the set without it was not shown to be worse.
    pub added: bool,
    /// The larger set over the smaller one, by the metric; of an addition, the estimate that chose it, which
    /// is too good on average.
    pub ratio: Option<f64>,
}

/// A member of a measured set: the set over the set without it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// The switch.
    pub switch: String,
    /// Median ratio, the set over the set without it.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Better if the set is worse without it.
    pub verdict: Verdict,
}
