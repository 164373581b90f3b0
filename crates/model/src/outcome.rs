//! Outcome of an experiment: the document behind every report.
//!
//! The JSON form of [`Outcome`] is the public results schema (`docs/results.md`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decision::step_of;
use crate::looks::Look;
use crate::pairs::{Pairs, Shift};
use crate::statistics::{self, Comparison};
use crate::verdict::{self, Evidence, Question};
use crate::{
    ArmKind, BestArm, Better, Forecast, Gate, Schedule, Search, Support, Tail, Trust, VERSION_MODE,
};

/// Resolution of results of versions that recorded none.
pub const RESOLVE_UNRECORDED: f64 = 1.10;

/// Version of the results schema; raised when a field changes its meaning.
pub const SCHEMA: u32 = 2;

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

/// Counts of an arm less those of its reference, in events per trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountDifference {
    /// Mean of the differences.
    pub mean: f64,
    /// Lower end of its 95 % interval; `None` with too few blocks.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

impl CountDifference {
    pub(crate) fn new(shift: &Shift) -> Self {
        CountDifference {
            mean: shift.center,
            low: shift.interval.and_then(|(low, _)| finite(low)),
            high: shift.interval.and_then(|(_, high)| finite(high)),
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

/// Outcome of an experiment.
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

    /// Compares one arm with another by one metric; `None` if an arm has no figure or never ran, or no
    /// block has both. The verdict is corrected for as many comparisons as the run has judged verdicts.
    pub fn step(
        &self,
        from: &ArmOutcome,
        to: &ArmOutcome,
        metric: &str,
    ) -> Option<(Comparison, Verdict)> {
        if from.trials == 0 || to.trials == 0 {
            return None;
        }
        let (from, to) = (from.metrics.get(metric)?, to.metrics.get(metric)?);
        let is_count = from.difference.or(to.difference).is_some();
        if is_count || from.median.is_none() || to.median.is_none() {
            return None;
        }
        let blocks = (self.blocks as usize).min(from.trials.len()).min(to.trials.len());
        let values = || from.trials.iter().chain(&to.trials).flatten().copied();
        let level = statistics::mean(&values().collect::<Vec<f64>>()).filter(|mean| *mean > 0.0);
        let step = level.map_or(0.0, |level| step_of(values()) / level);
        let question = |blocks: usize| {
            let (to_first, from_first) = (&to.trials[..blocks], &from.trials[..blocks]);
            let pairs = Pairs::new(to_first, from_first, None, blocks, to.better);
            Question { pairs, better: to.better, level: 0.0, tail_high: None, step }
        };
        let mut evidence = Evidence::default();
        let mut looks = self.looked.clone();
        // No step decides when a run ends, so the end is a look of its own.
        if looks.is_empty() || self.ended == Ended::Settled {
            looks.push(Look::at_end(self.blocks, looks.len()));
        }
        for look in looks {
            evidence.look(&question(blocks.min(look.blocks as usize)), look.weight, self.resolve);
        }
        let family = self.arms.iter().map(|arm| self.judged_count(arm)).sum();
        let is_complete = !matches!(self.ended, Ended::Interrupted | Ended::Unfinished);
        let answer = verdict::answer_one_of(&question(blocks), &evidence, family, is_complete);
        Some((answer.comparison?, answer.verdict))
    }

    /// Number of verdicts on an arm.
    fn judged_count(&self, arm: &ArmOutcome) -> usize {
        if !matches!(arm.kind, ArmKind::Variant | ArmKind::Peer) {
            return 0;
        }
        self.judged
            .iter()
            .filter(|name| arm.metrics.get(*name).is_some_and(|m| m.p.is_some()))
            .count()
    }
}
