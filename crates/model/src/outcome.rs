//! What an experiment came to: the document behind every report.
//!
//! The JSON form of [`Outcome`] is the public results schema (`docs/results.md`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::statistics::{self, Comparison, LEVEL};
use crate::{ArmKind, Better, MARGIN, Support};

/// Version of the results schema; raised when a field changes its meaning.
pub const SCHEMA: u32 = 1;

/// What can be said of one metric of one arm against the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval is clear of 1 on the good side and beyond the A/A floor.
    Better,
    /// The same on the bad side.
    Worse,
    /// The interval holds 1, or lies within the floor, and is narrow enough to say so.
    NoDifferenceShown,
    /// The interval is too wide to say.
    Inconclusive,
    /// A switch of the arm did nothing here, whatever the figures say.
    NotEffective,
    /// The arm cannot run here.
    Unsupported,
    /// The figure would mislead (loss, too few samples), so none is given.
    Refused,
}

/// One metric of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricOutcome {
    /// Unit of `median`.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Median over the arm's trials; `None` when refused.
    pub median: Option<f64>,
    /// Arm over baseline, median of paired ratios; `None` when there is no pair.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % interval of `ratio`.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval of `ratio`.
    pub high: Option<f64>,
    /// Two-sided permutation p-value of `ratio` against 1.
    pub p: Option<f64>,
    /// `None` for the baseline, and for counts that are reported but not judged.
    pub verdict: Option<Verdict>,
    /// Why the figure was refused or the switch not effective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Value per block, in block order; `None` where that trial gave none.
    #[serde(default)]
    pub trials: Vec<Option<f64>>,
}

impl MetricOutcome {
    /// Values that nothing is said of yet.
    pub fn unjudged(unit: &str, better: Better, trials: Vec<Option<f64>>) -> Self {
        MetricOutcome {
            unit: unit.into(),
            better,
            median: None,
            ratio: None,
            low: None,
            high: None,
            p: None,
            verdict: None,
            why: None,
            trials,
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
    /// Largest, nanoseconds.
    pub max_ns: u64,
    /// (quantile, nanoseconds), ascending; only quantiles with enough samples beyond them.
    pub quantiles: Vec<(f64, u64)>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArmOutcome {
    /// Unique within the experiment.
    pub name: String,
    /// Its part.
    pub kind: ArmKind,
    /// Switches that were on.
    pub switches: Vec<String>,
    /// Whether it could run.
    pub support: Support,
    /// Trials that count (the warm-up does not).
    pub trials: u32,
    /// By metric name.
    pub metrics: BTreeMap<String, MetricOutcome>,
    /// Pooled latency by segment.
    #[serde(default)]
    pub latency: BTreeMap<String, Distribution>,
    /// The mode really in use.
    #[serde(default)]
    pub mode: BTreeMap<String, String>,
    /// Sums of counters over the arm's trials.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// Trials that failed, with the error.
    #[serde(default)]
    pub failures: Vec<String>,
}

/// Noise floor of one metric: the A/A pair's interval, as ratios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Floor {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The machine an experiment ran on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Random-looking but stable name for this machine's description, to compare by.
    pub id: String,
    /// Kernel release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Hypervisor, when there is one.
    pub hypervisor: Option<String>,
    /// Frequency governor, when there is one.
    pub governor: Option<String>,
    /// Interface and driver under test.
    pub nic: String,
    /// Load average over one minute at the start, times 100.
    pub load_x100: u32,
    /// Anything else worth a line: name → value.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
}

/// Something the reader must know, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// What was seen.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

/// Why an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Every verdict was settled.
    Settled,
    /// The time given was used up.
    TimeUp,
    /// The block limit was reached.
    BlockLimit,
    /// The user, or an error, stopped it.
    Interrupted,
    /// Still running, or killed.
    Unfinished,
}

/// What an experiment came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Id in the store, e.g. `20261121-083000-probe-1f3a`.
    pub id: String,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    /// Wirepath's version.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// Path.
    pub path: String,
    /// Load and its parameters, e.g. `kind` → `ping`, `size_bytes` → `64`.
    pub load: BTreeMap<String, String>,
    /// Seed of the schedule.
    pub seed: u64,
    /// Blocks that count.
    pub blocks: u32,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// Why it ended.
    pub ended: Ended,
    /// Metrics the load judges by, most important first.
    pub judged: Vec<String>,
    /// All arms, in the order they were asked for, unsupported ones included.
    pub arms: Vec<ArmOutcome>,
    /// A/A floor by metric name.
    pub floor: BTreeMap<String, Floor>,
    /// What the reader must know.
    pub warnings: Vec<Warning>,
}

impl Outcome {
    /// One arm over another by one metric, by the rule of all verdicts, with the floor of the
    /// experiment; `None` when an arm lacks the metric, or no block has both.
    pub fn step(
        &self,
        from: &ArmOutcome,
        to: &ArmOutcome,
        metric: &str,
    ) -> Option<(Comparison, Verdict)> {
        let (from, to) = (from.metrics.get(metric)?, to.metrics.get(metric)?);
        let ratios = statistics::log_ratios(&to.trials, &from.trials);
        let comparison = statistics::compare(&ratios, LEVEL)?;
        let floor = self.floor.get(metric).copied();
        let verdict = statistics::verdict(&comparison, LEVEL, floor, MARGIN, to.better);
        Some((comparison, verdict))
    }
}
