//! Two series of runs against each other: are the newer ones different?
//!
//! The session is the unit, never the block, and not the run: two runs are not interleaved, machine, memory layout
//! and neighbours differ from one to the next, and runs of one day share what that day does to the machine. Blocks of
//! two runs treated as independent samples called unchanged runs worse in 34 to 86 % of simulated pairs; runs of two
//! days treated so had a false verdict in 29 to 94 % of simulated comparisons. Each session therefore contributes one
//! figure, the median over its runs, to each of two questions:
//!
//! - **value**: the median of the arm's trials; includes changes of the machine.
//! - **worth**: the arm's ratio to the baselines of its own run. Changes that affect all arms of a run
//!   alike cancel, whether of the machine or of shared code.
//!
//! The figures of both sides are compared by the rank-sum test, with Holm's correction over all values
//! and over all worths.

mod gate;
mod runs;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ArmKind, Better, By, CountDifference, Ended, Gate, Machine, Unit, Verdict, Warning};

pub(crate) use runs::{ASIDE, arms_of, is_same, unit_figures, unit_means};
pub use runs::{comparable, compare, runs_needed};

/// Version of the form of [`RunComparison`]; raised when a field changes its meaning.
pub const COMPARISON_SCHEMA: u32 = 3;

/// Fewest units a side that have a verdict.
pub const RUNS_MIN: usize = 5;

/// Margin of no difference in documents that do not state one.
fn margin_of_older_documents() -> f64 {
    1.10
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    #[error("cannot compare {id} with itself")]
    Same { id: String },
    #[error("no experiment to compare with")]
    NoRun,
    #[error(
        "{old_id} and {new_id} cannot be compared: {what} is {old} in the first and {new} in the \
         second, so a ratio would be meaningless"
    )]
    Different { old_id: String, new_id: String, what: String, old: String, new: String },
    #[error("the older and the newer experiments have no {what} in common")]
    NothingShared {
        /// `arm` or `judged figure`.
        what: &'static str,
    },
}

/// One of the experiments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedRun {
    /// Id in the store.
    pub id: String,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    /// Wirepath's version.
    pub version: String,
    /// Blocks that count.
    pub blocks: u32,
    /// Reason for the end.
    pub ended: Ended,
    /// The machine.
    pub machine: Machine,
}

/// A difference between the runs besides the compared values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Difference {
    /// Name of the difference, e.g. `kernel`.
    pub what: String,
    /// Its values in the older runs, separated by commas.
    pub old: String,
    /// Its values in the newer runs.
    pub new: String,
}

/// The newer runs over the older ones, of one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// Newer over older: the median of all ratios between a newer and an older unit.
    pub ratio: f64,
    /// Lower end of the 95 % interval of `ratio`; `None` below five units a side.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval of `ratio`.
    pub high: Option<f64>,
    /// Two-sided rank-sum p-value of `ratio` against 1; `None` below five units a side.
    pub p: Option<f64>,
    /// `p` corrected for all values, or all worths, of the comparison (Holm).
    pub p_adjusted: Option<f64>,
    /// Older units (runs, sessions or days) that have the figure.
    pub old_count: usize,
    /// Newer units that have the figure.
    pub new_count: usize,
    /// Verdict on the change.
    pub verdict: Verdict,
}

/// Counts of the newer runs less those of the older ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountChange {
    /// Median of all differences between the mean of a newer and of an older unit, in events per trial, with its 95 %
    /// interval.
    #[serde(flatten)]
    pub difference: CountDifference,
    /// Mean over the older units, in events per trial.
    pub old_mean: f64,
    /// Two-sided rank-sum p-value of no change, corrected with the values; `None` below five units a side.
    pub p_adjusted: Option<f64>,
    /// Older units (runs, sessions or days) that have the figure.
    pub old_count: usize,
    /// Newer units that have the figure.
    pub new_count: usize,
    /// Verdict on the change.
    pub verdict: Verdict,
}

/// True if a ratio, or its inverse, is at least `least`, which is above 1.
pub fn is_beyond(ratio: f64, least: f64) -> bool {
    ratio.max(1.0 / ratio) >= least
}

/// One metric of one arm on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricComparison {
    /// Unit of `old` and `new`.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Median over the older units; `None` if refused in all of them.
    pub old: Option<f64>,
    /// Median over the newer units; `None` if refused in all of them.
    pub new: Option<f64>,
    /// Newer value over older value.
    pub value: Option<Change>,
    /// The arm's ratio to its baseline, newer over older; `None` for the baseline itself.
    pub worth: Option<Change>,
    /// Of counts, in place of both: the newer runs less the older ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<CountChange>,
    /// Reason for a missing figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One arm that both sides have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArmComparison {
    /// Its name in the newest run.
    pub name: String,
    /// Role in the experiment.
    pub kind: ArmKind,
    /// By name of a metric that all runs judge by.
    pub metrics: BTreeMap<String, MetricComparison>,
}

/// Two series of experiments against each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunComparison {
    /// [`COMPARISON_SCHEMA`].
    pub comparison: u32,
    /// Unit that contributes one figure to each question.
    #[serde(default = "Unit::of_older_documents")]
    pub unit: Unit,
    /// Ratio above 1 up to which a change does not matter: margin of "no difference" and threshold of the gate.
    #[serde(default = "margin_of_older_documents")]
    pub resolve: f64,
    /// Number of older units; 0 in documents that state no unit.
    #[serde(default)]
    pub old_units: usize,
    /// Number of newer units.
    #[serde(default)]
    pub new_units: usize,
    /// The older runs.
    pub old_runs: Vec<ComparedRun>,
    /// The newer runs.
    pub new_runs: Vec<ComparedRun>,
    /// Path.
    pub path: String,
    /// Load and its parameters, as far as all have them in common.
    pub load: BTreeMap<String, String>,
    /// True if all machines have the same description.
    pub same_machine: bool,
    /// Other differences.
    pub differences: Vec<Difference>,
    /// Metrics that all judge by, most important first.
    pub judged: Vec<String>,
    /// Arms that both sides have, without the control.
    pub arms: Vec<ArmComparison>,
    /// Arms that only older runs have.
    pub only_old: Vec<String>,
    /// Arms that only newer runs have.
    pub only_new: Vec<String>,
    /// Conditions that qualify the comparison.
    pub warnings: Vec<Warning>,
    /// The answer of `--fail-on`; absent if none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
}

impl MetricComparison {
    /// Returns the change of the value or of the worth.
    pub fn change(&self, by: By) -> Option<&Change> {
        match by {
            By::Value => self.value.as_ref(),
            By::Worth => self.worth.as_ref(),
        }
    }
}

impl RunComparison {
    pub fn values(&self) -> impl Iterator<Item = (&ArmComparison, &str, &MetricComparison)> {
        self.arms.iter().flat_map(move |arm| {
            self.judged
                .iter()
                .filter_map(move |name| Some((arm, name.as_str(), arm.metrics.get(name)?)))
        })
    }

    /// Returns judged metrics in which the baseline itself is better or worse by at least a ratio above 1.
    pub fn moved_baselines(&self, least: f64) -> Vec<&str> {
        self.values()
            .filter(|(arm, _, metric)| {
                arm.kind == ArmKind::Baseline
                    && metric.value.as_ref().is_some_and(|change| {
                        change.verdict.differs() && is_beyond(change.ratio, least)
                    })
            })
            .map(|(_, name, _)| name)
            .collect()
    }

    /// Number of figures that have a value or a worth.
    pub fn questions(&self, by: By) -> usize {
        self.values()
            .filter(|(.., metric)| {
                metric.change(by).is_some() || (by == By::Value && metric.difference.is_some())
            })
            .count()
    }
}
