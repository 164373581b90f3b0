//! Two experiments against each other: is the newer one different?
//!
//! Two questions, because two runs are never interleaved and the machine may have changed
//! between them:
//!
//! - **value**: the newer run's values over the older one's. Sees everything, the machine included.
//! - **worth**: each arm over its own run's baseline, the newer over the older. What moves
//!   all arms of a run alike cancels, be it the machine or a change that they share.
//!
//! Both are judged as in an experiment: an interval clear of 1 and beyond the noise floors
//! of **both** runs. A value must also be beyond what the baseline drifted within either
//! run: what moves within a run moves between two.

mod runs;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ArmKind, Better, Ended, Floor, Machine, Verdict, Warning};

pub use runs::{comparable, compare};

/// Version of the form of [`RunComparison`]; raised when a field changes its meaning.
pub const COMPARISON_SCHEMA: u32 = 1;

/// Why two experiments cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// Both are the same one.
    #[error("{id} is both of them; an experiment does not differ from itself")]
    Same {
        /// Its id.
        id: String,
    },
    /// They measured different things.
    #[error(
        "{old_id} and {new_id} cannot be compared: {what} is {old} in the first and {new} in the \
         second, and a ratio of the two would say nothing of either"
    )]
    Different {
        /// The older experiment.
        old_id: String,
        /// The newer experiment.
        new_id: String,
        /// What differs, in words.
        what: String,
        /// Its value in the older one.
        old: String,
        /// Its value in the newer one.
        new: String,
    },
    /// No arm, or no judged metric, is in both.
    #[error("{old_id} and {new_id} have no {what} in common")]
    NothingShared {
        /// The older experiment.
        old_id: String,
        /// The newer experiment.
        new_id: String,
        /// `arm` or `judged figure`.
        what: &'static str,
    },
}

/// One of the two experiments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Id in the store.
    pub id: String,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    /// Wirepath's version.
    pub version: String,
    /// Blocks that count.
    pub blocks: u32,
    /// Why it ended.
    pub ended: Ended,
    /// The machine.
    pub machine: Machine,
}

/// Something that is not the same in both runs, apart from what is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What it is, e.g. `kernel`.
    pub what: String,
    /// Its value in the older run.
    pub old: String,
    /// Its value in the newer run.
    pub new: String,
}

/// The newer run over the older one, of one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Newer over older.
    pub ratio: f64,
    /// Lower end of the 95 % interval of `ratio`.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval of `ratio`.
    pub high: Option<f64>,
    /// Two-sided rank-sum p-value of `ratio` against 1.
    pub p: f64,
    /// Ratio beyond which (or below whose inverse) a difference counts; `None` when a run has no floor.
    pub reach: Option<f64>,
    /// What may be said.
    pub verdict: Verdict,
}

/// One metric of one arm in both runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// Unit of `old` and `new`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Median in the older run; `None` when refused.
    pub old: Option<f64>,
    /// Median in the newer run; `None` when refused.
    pub new: Option<f64>,
    /// Newer value over older value.
    pub value: Option<Change>,
    /// The arm's ratio to its baseline, newer over older; `None` for the baseline itself.
    pub worth: Option<Change>,
    /// Why there is no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// One arm that both runs have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmComparison {
    /// Its name in the newer run.
    pub name: String,
    /// Its part.
    pub kind: ArmKind,
    /// By name of a metric that both runs judge by.
    pub metrics: BTreeMap<String, MetricComparison>,
}

/// How sure one metric is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// A/A floor of the older run.
    pub old_floor: Option<Floor>,
    /// A/A floor of the newer run.
    pub new_floor: Option<Floor>,
    /// Ratio of the baseline's second half to its first, older run.
    pub old_drift: Option<f64>,
    /// Ratio of the baseline's second half to its first, newer run.
    pub new_drift: Option<f64>,
}

/// Two experiments against each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// [`COMPARISON_SCHEMA`].
    pub comparison: u32,
    /// What is compared with.
    pub old: Run,
    /// What is compared.
    pub new: Run,
    /// Path.
    pub path: String,
    /// Load and its parameters, as far as both have them in common.
    pub load: BTreeMap<String, String>,
    /// Whether the two machines have the same description.
    pub same_machine: bool,
    /// What differs besides.
    pub differences: Vec<Difference>,
    /// Metrics that both judge by, most important first.
    pub judged: Vec<String>,
    /// Arms that both have, without the control.
    pub arms: Vec<ArmComparison>,
    /// Arms that only the older run has.
    pub only_old: Vec<String>,
    /// Arms that only the newer run has.
    pub only_new: Vec<String>,
    /// By judged metric.
    pub noise: BTreeMap<String, Noise>,
    /// What the reader must know.
    pub warnings: Vec<Warning>,
}

impl RunComparison {
    /// All changes of values, with the arm and metric they are of.
    pub fn values(&self) -> impl Iterator<Item = (&ArmComparison, &str, &MetricComparison)> {
        self.arms.iter().flat_map(move |arm| {
            self.judged
                .iter()
                .filter_map(move |name| Some((arm, name.as_str(), arm.metrics.get(name)?)))
        })
    }

    /// Arms and metrics whose value (or worth) is worse, most important metric first.
    pub fn worse(&self, by_worth: bool) -> Vec<(&str, &str)> {
        let is_worse = |change: &Option<Change>| {
            change.as_ref().is_some_and(|change| change.verdict == Verdict::Worse)
        };
        self.values()
            .filter(|(_, _, metric)| is_worse(if by_worth { &metric.worth } else { &metric.value }))
            .map(|(arm, name, _)| (arm.name.as_str(), name))
            .collect()
    }
}
