//! Outcome of an experiment: the document behind every report.
//!
//! The JSON form of [`Outcome`] is the public results schema (`docs/reference/results.md`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    ArmKind, Better, CountDifference, CpuSamples, Distribution, Floor, Forecast, Gate, Look,
    Reliability, Schedule, Search, Support, Tail, Trust, VERSION_MODE, Verdict,
};

/// Resolution of results of versions that recorded none.
pub const RESOLVE_UNRECORDED: f64 = 1.10;

/// Version of the results schema; raised when a field changes its meaning.
pub const SCHEMA: u32 = 2;

/// One metric of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MetricOutcome {
    /// Unit of `median`.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Median over the arm's trials that gave a value; `None` if refused.
    pub median: Option<f64>,
    /// Arm over the mean of both baselines, median of paired ratios; `None` without a pair, or if it is
    /// infinite because most trials failed.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % interval of `ratio`, which holds at every look at the run.
    pub low: Option<f64>,
    /// Upper end of the same; `None` beside a `low` if it is infinite because trials failed.
    pub high: Option<f64>,
    /// Of counts, in place of `ratio`: the arm less the mean of both baselines, in events per trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<CountDifference>,
    /// Two-sided permutation p-value of `ratio` against 1, or of `difference` against 0.
    pub p: Option<f64>,
    /// `p` corrected for all verdicts of the run (Holm); `None` if not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_adjusted: Option<f64>,
    /// Ratio above 1 that such a run finds in 19 of 20 cases; `None` if it is too short to find any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finds: Option<f64>,
    /// The tail over all trials together, for judged p99 and p99.9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// `None` for the baseline, and for metrics that are reported but not judged.
    pub verdict: Option<Verdict>,
    /// Reason why the figure was refused or the switch had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Value per block, in block order; `None` if the trial gave none, which counts as the worst. Shorter than the run if the arm
    /// was decided before its end.
    #[serde(default)]
    pub trials: Vec<Option<f64>>,
}

impl MetricOutcome {
    /// Values without a verdict.
    pub fn unjudged(unit: &str, better: Better, trials: Vec<Option<f64>>) -> Self {
        MetricOutcome {
            unit: unit.into(),
            better,
            median: None,
            ratio: None,
            low: None,
            high: None,
            difference: None,
            p: None,
            p_adjusted: None,
            finds: None,
            tail: None,
            verdict: None,
            why: None,
            trials,
        }
    }
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ArmOutcome {
    /// Unique within the experiment.
    pub name: String,
    /// Role in the experiment.
    pub kind: ArmKind,
    /// Switches that were on.
    pub switches: Vec<String>,
    /// Ability to run here.
    pub support: Support,
    /// Trials that count (the warm-up does not).
    pub trials: u32,
    /// By metric name.
    pub metrics: BTreeMap<String, MetricOutcome>,
    /// Pooled latency by segment.
    #[serde(default)]
    pub latency: BTreeMap<String, Distribution>,
    /// Modes in use.
    #[serde(default)]
    pub mode: BTreeMap<String, String>,
    /// Sums of counters over the arm's trials.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// CPU time by function over the arm's trials; `None` where nothing was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<CpuSamples>,
    /// Its failed trials beside the baseline's; `None` if neither failed any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reliability: Option<Reliability>,
    /// Errors of failed trials.
    #[serde(default)]
    pub failures: Vec<String>,
}

impl ArmOutcome {
    /// Name for a table: that of a peer program has its version, `iperf3 3.12`.
    pub fn label(&self) -> String {
        match self.mode.get(VERSION_MODE).filter(|_| self.kind == ArmKind::Peer) {
            Some(version) => format!("{} {version}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The machine an experiment ran on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// Stable hash of this machine's description, for comparisons.
    pub id: String,
    /// Kernel release and version.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Hypervisor, if there is one.
    pub hypervisor: Option<String>,
    /// Frequency governor, if there is one.
    pub governor: Option<String>,
    /// Interface and driver under test.
    pub nic: String,
    /// Load average over one minute at the start, times 100.
    pub load_x100: u32,
    /// Other properties: name → value.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
    /// The machine of the far end, of a run between two hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Box<Machine>>,
}

/// A condition that qualifies the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    /// The condition.
    pub what: String,
    /// Remedy.
    pub advice: String,
}

/// Reason for the end of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// Every verdict was settled.
    Settled,
    /// The time budget was used up.
    TimeUp,
    /// The block limit was reached.
    BlockLimit,
    /// The user or an error stopped it.
    Interrupted,
    /// Still running, or killed.
    Unfinished,
}

impl Ended {
    /// False if it ended early, perhaps because it looked good, or bad.
    pub fn is_complete(self) -> bool {
        !matches!(self, Ended::Interrupted | Ended::Unfinished)
    }
}

/// The arm with the best value among those shown to be better.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BestArm {
    /// Its name.
    pub arm: String,
    /// The metric.
    pub metric: String,
    /// Judged arms that it was chosen from; 1 for the set of a search, which was measured anew.
    pub of: u32,
    /// Its ratio to the baselines, as measured: of several arms, too good on average; `None` of counts.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % interval of the ratio, which holds for all arms of the choice at once.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

/// Words of a path for sentences about its results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Phrases {
    /// Thing whose time the first judged metric is: `ping`; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub noun: String,
    /// The baseline: `plain socket`; empty for its name alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub baseline: String,
    /// Words behind "by", by switch: `spin` → `polling`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by: BTreeMap<String, String>,
}

impl Phrases {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        *self == Phrases::default()
    }
}

/// Outcome of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Id in the store, e.g. `20261121-083000-probe-1f3a`.
    pub id: String,
    /// The user's name for it (`--name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The user's note on it (`--note`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
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
    /// Words of the path for sentences; absent in results of versions that recorded none.
    #[serde(default, skip_serializing_if = "Phrases::is_empty")]
    pub phrases: Phrases,
    /// Seed of the schedule.
    pub seed: u64,
    /// Order of trials, and settling trials; absent in results of versions that had random orders alone.
    #[serde(default, skip_serializing_if = "Schedule::is_default")]
    pub schedule: Schedule,
    /// Blocks that count.
    pub blocks: u32,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// Reason for the end.
    pub ended: Ended,
    /// Planned looks at which the run could have ended early.
    #[serde(default)]
    pub looks: u32,
    /// All looks on which the verdicts rest, that at the planned end included; empty for results of versions that looked once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked: Vec<Look>,
    /// Needs of the figures that are not decided; `None` if all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
    /// Resolution: the ratio up to which a difference is none (`--resolve`).
    #[serde(default = "resolve_unrecorded")]
    pub resolve: f64,
    /// Metrics the load judges by, most important first.
    pub judged: Vec<String>,
    /// All arms, in the order of the command line, including unsupported ones.
    pub arms: Vec<ArmOutcome>,
    /// The best arm by each judged metric that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub best: Vec<BestArm>,
    /// A/A floor by metric name.
    pub floor: BTreeMap<String, Floor>,
    /// Conditions that qualify the results.
    pub warnings: Vec<Warning>,
    /// Checks of the run's own assumptions.
    #[serde(default, skip_serializing_if = "Trust::is_empty")]
    pub trust: Trust,
    /// The answer of `--fail-on`; absent if none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// The search that chose the arms (`--arms best`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
}

pub(crate) fn resolve_unrecorded() -> f64 {
    RESOLVE_UNRECORDED
}

impl Outcome {
    /// Samples of both runs of the baseline; `None` if none was sampled.
    pub fn baseline_samples(&self) -> Option<CpuSamples> {
        let baselines =
            self.arms.iter().filter(|arm| matches!(arm.kind, ArmKind::Baseline | ArmKind::Control));
        let mut all = CpuSamples::default();
        baselines.filter_map(|arm| arm.samples.as_ref()).for_each(|samples| all.add(samples));
        (all.trial_count > 0).then_some(all)
    }

    /// Judged metrics whose verdicts are not to be trusted: the baseline differs from itself, or the trial before moves
    /// the figures.
    pub fn distrusted(&self) -> Vec<&str> {
        let (differing, moved) = (self.differing(), self.trust.carried_over());
        self.judged
            .iter()
            .map(String::as_str)
            .filter(|name| differing.contains(name) || moved.contains(name))
            .collect()
    }

    /// Judged metrics in which the baseline differs from itself.
    pub fn differing(&self) -> Vec<&str> {
        let control = self.arms.iter().find(|arm| arm.kind == ArmKind::Control);
        self.judged
            .iter()
            .filter(|name| {
                let verdict = control.and_then(|control| control.metrics.get(*name)?.verdict);
                verdict.is_some_and(Verdict::differs)
            })
            .map(String::as_str)
            .collect()
    }
}
