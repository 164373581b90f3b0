//! The experiment as a state machine: it selects the next trial, records its result, and decides when
//! to stop. It runs nothing and reads no clock.

mod plan;
mod restore;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub use plan::{ExperimentPlan, Members, RESOLVE};

use crate::evidence::RunEvidence;
use crate::judge::{Table, tail_of};
use crate::looks::{Look, look_after};
use crate::schedule::balanced_order;
use crate::tail::Samples;
use crate::{
    Arm, ArmKind, Ended, Machine, Measurement, Metric, NotEffective, Order, Outcome, Search,
    Support, Trap, TrialRecord, Verdict, Warning, carry_over, order,
};

/// Ratio beyond which an effect is not that of the trial before: a third of what such a trial leaves reaches the arm.
const LARGE: f64 = 1.20;

/// Consecutive failures from the first block on after which an arm is not run again.
const HOPELESS_AFTER: u32 = 3;

/// Blocks from which on a forecast rests on enough figures.
pub const FORECAST_AFTER: u32 = 8;

/// Next action of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Run this arm once and [`Experiment::record`] the result.
    Trial {
        /// 0 is the warm-up.
        block: u32,
        /// Index into the plan's arms.
        arm: usize,
        /// True if the result will not count.
        warmup: bool,
    },
    Done(Ended),
}

#[derive(Debug, Clone)]
pub struct Trial {
    /// 0 is the warm-up.
    pub block: u32,
    /// Index into the plan's arms.
    pub arm: usize,
    /// True if it does not count.
    pub warmup: bool,
    /// Start, nanoseconds since the start of the experiment.
    pub started_ns: u64,
    /// Share of the machine's CPU time that other work took, 0 to about 1.
    pub noise: f64,
    /// True if `noise` is above the noise gate.
    pub noisy: bool,
    /// Start of the program that ran it; see [`Measurement::start`].
    pub start: Option<u32>,
    pub not_effective: Vec<NotEffective>,
    pub traps: Vec<Trap>,
    /// Latencies by stem of the metric, for judged tails.
    pub(crate) samples: BTreeMap<String, Samples>,
    pub result: Result<Vec<Metric>, String>,
}

impl Trial {
    /// A trial without a result.
    fn new(block: u32, arm: usize, warmup: bool, started_ns: u64) -> Self {
        Trial {
            block,
            arm,
            warmup,
            started_ns,
            noise: 0.0,
            noisy: false,
            start: None,
            not_effective: Vec::new(),
            traps: Vec::new(),
            samples: BTreeMap::new(),
            result: Err(String::new()),
        }
    }
}

/// Time for a verdict; see [`Experiment::lacks_time`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeNeeded {
    /// Fewest blocks with a verdict.
    pub blocks: u32,
    /// Expected duration of one.
    pub block_ns: u64,
    /// Expected duration of the run, its warm-up included.
    pub whole_ns: u64,
}

impl TimeNeeded {
    /// Whole seconds for `--time`, with a tenth more: blocks differ.
    pub fn whole_s(&self) -> u64 {
        (self.whole_ns as f64 * 1.1 / 1e9).ceil() as u64
    }
}

/// Needs of a resolution in blocks and time, and the resolution that the given time reaches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// Blocks after which a difference of the resolution is found in 19 of 20 runs.
    pub blocks: u32,
    /// Time of a run with so many, milliseconds.
    pub whole_ms: u64,
    /// Difference that is found in 19 of 20 runs of the given time, as a ratio above 1.
    pub reaches: f64,
}

impl Forecast {
    /// Whole seconds for `--time`, with a tenth more: blocks differ.
    pub fn whole_s(&self) -> u64 {
        (self.whole_ms as f64 * 1.1 / 1e3).ceil() as u64
    }
}

/// Extent of [`Experiment::replay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    pub trials: usize,
}

/// Metadata of an outcome; see the fields of [`Outcome`].
#[derive(Debug, Clone, Default)]
pub struct OutcomeHeader {
    pub id: String,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    pub version: String,
    pub machine: Machine,
    pub path: String,
    pub load: BTreeMap<String, String>,
    pub search: Option<Search>,
}

/// Sums over the trials of an arm.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    /// By segment, with the datagrams lost beside them.
    pub(crate) latency: BTreeMap<String, (Histogram<u64>, f64)>,
    pub(crate) mode: BTreeMap<String, Vec<String>>,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) successes: u32,
    failures: u32,
    pub(crate) hopeless: bool,
}

/// An experiment in progress.
///
/// ```
/// use wirepath_model::*;
/// let arms = arms(&ArmPlan::Alone, &ids(FakeSwitch::SPECS), &[], &mut FakeSource::support);
/// let mut fake = FakeSource::new(FakeWorld { seed: 1, ..FakeWorld::default() });
/// let plan = ExperimentPlan::new(1, arms.clone(), vec!["rtt_ns_p50".into()], 60_000_000_000, 2);
/// let mut experiment = Experiment::new(plan);
/// while let Step::Trial { arm, .. } = experiment.next(fake.now_ns()) {
///     let measurement = fake.trial(&arms[arm].0);
///     experiment.record(Ok(measurement));
/// }
/// let outcome = experiment.outcome(OutcomeHeader::default());
/// assert_eq!(outcome.arms[0].name, "baseline");
/// ```
#[derive(Debug, Clone)]
pub struct Experiment {
    pub(crate) plan: ExperimentPlan,
    pub(crate) pools: Vec<Pool>,
    pub(crate) trials: Vec<Trial>,
    /// Arms still to run in this block, next one last.
    queue: Vec<usize>,
    pending: Option<Trial>,
    /// Block that runs or comes next; 0 is the warm-up.
    block: u32,
    block_started_ns: u64,
    block_running: bool,
    /// Duration of each block so far, the warm-up included.
    durations_ns: Vec<u64>,
    /// Noisy blocks among those that count.
    pub(crate) noisy_blocks: u32,
    pub(crate) elapsed_ns: u64,
    pub(crate) ended: Option<Ended>,
    /// Evidence of the looks so far.
    pub(crate) seen: RunEvidence,
    /// By arm: the block after which it was decided, and from which on it does not run.
    pub(crate) decided: Vec<Option<u32>>,
    /// True during a look.
    pub(crate) looking: bool,
    /// True if its figures were looked at before it went on.
    pub(crate) resumed: bool,
    pub(crate) warnings: Vec<Warning>,
}

impl Experiment {
    pub fn new(plan: ExperimentPlan) -> Self {
        Experiment {
            pools: vec![Pool::default(); plan.arms.len()],
            decided: vec![None; plan.arms.len()],
            plan,
            trials: Vec::new(),
            queue: Vec::new(),
            pending: None,
            block: 0,
            block_started_ns: 0,
            block_running: false,
            durations_ns: Vec::new(),
            noisy_blocks: 0,
            elapsed_ns: 0,
            ended: None,
            seen: RunEvidence::default(),
            looking: false,
            resumed: false,
            warnings: Vec::new(),
        }
    }

    /// Returns the next action; the same trial again until its result is recorded.
    ///
    /// - `elapsed_ns`: nanoseconds since the start of the experiment.
    pub fn next(&mut self, elapsed_ns: u64) -> Step {
        self.elapsed_ns = self.elapsed_ns.max(elapsed_ns);
        if let Some(ended) = self.ended {
            return Step::Done(ended);
        }
        if let Some(trial) = &self.pending {
            return Step::Trial { block: trial.block, arm: trial.arm, warmup: trial.warmup };
        }
        if self.queue.is_empty() {
            self.end_block();
            if let Some(ended) = self.why_end() {
                self.ended = Some(ended);
                return Step::Done(ended);
            }
            self.begin_block();
        }
        let Some(arm) = self.queue.pop() else {
            // Reached only if no arm can run.
            self.ended = Some(Ended::Interrupted);
            return Step::Done(Ended::Interrupted);
        };
        let (block, warmup) = (self.block, self.block == 0 || self.is_settling(arm));
        self.pending = Some(Trial::new(block, arm, warmup, self.elapsed_ns));
        Step::Trial { block, arm, warmup }
    }

    /// Records the result of the trial that [`next`](Self::next) returned; ignored if there is none.
    pub fn record(&mut self, result: Result<Measurement, String>) {
        let Some(mut trial) = self.pending.take() else { return };
        let pool = &mut self.pools[trial.arm];
        match result {
            Ok(measurement) => {
                pool.successes += 1;
                trial.noise = self.plan.noise_of(&measurement);
                trial.noisy = trial.noise > self.plan.noise_gate;
                trial.result = Ok(measurement.metrics());
                trial.start = measurement.start;
                if !trial.warmup {
                    pool.add(&measurement);
                    trial.samples = tails(&self.plan.judged, &measurement);
                }
                trial.not_effective = measurement.not_effective;
                trial.traps = measurement.traps;
            }
            Err(error) => {
                pool.failures += 1;
                pool.hopeless = pool.successes == 0 && pool.failures >= HOPELESS_AFTER;
                trial.result = Err(error);
            }
        }
        self.trials.push(trial);
    }

    /// Records trials that ran before, in their order.
    ///
    /// Errors: a trial is not the next one of this plan. Those before it are recorded.
    pub fn replay(&mut self, stored: Vec<TrialRecord>) -> Result<Replayed, Replayed> {
        for trial in stored {
            let step = self.next(trial.started_ms * 1_000_000);
            let is_same = matches!(step, Step::Trial { block, arm, warmup }
                if block == trial.block && warmup == trial.warmup && self.plan.arms[arm].0.name == trial.arm);
            if !is_same {
                return Err(Replayed { trials: self.trials.len() });
            }
            self.record(trial.result);
        }
        self.resumed = true;
        Ok(Replayed { trials: self.trials.len() })
    }

    /// True if a trial with this measurement is above the noise gate.
    pub fn is_noisy(&self, measurement: &Measurement) -> bool {
        self.plan.noise_of(measurement) > self.plan.noise_gate
    }

    /// Stops at the next call of [`next`](Self::next); a trial under way may still be recorded.
    pub fn interrupt(&mut self) {
        self.ended.get_or_insert(Ended::Interrupted);
    }

    /// Returns the trials so far in order of execution, including warm-up and failures.
    pub fn trials(&self) -> impl ExactSizeIterator<Item = &Trial> + DoubleEndedIterator {
        self.trials.iter()
    }

    pub fn arms(&self) -> &[(Arm, Support)] {
        &self.plan.arms
    }

    pub fn blocks(&self) -> u32 {
        (self.durations_ns.len() as u32).saturating_sub(1)
    }

    /// Time at which the run ends at the latest, as far as its blocks so far show, nanoseconds since its start.
    pub fn end_ns(&self, elapsed_ns: u64) -> u64 {
        let block_ns = self.expected_ns();
        let most = u64::from(self.plan.max_blocks.saturating_sub(self.quiet_blocks()));
        let all_ns = match block_ns {
            0 => self.plan.budget_ns,
            _ => self.block_started_ns.saturating_add(block_ns.saturating_mul(most)),
        };
        // A block that has begun is completed.
        let arms = self.plan.arms.len().max(1) as u64;
        let trials = if self.settles() { 2 * arms } else { arms };
        let rest_ns = block_ns / trials * (self.queue.len() as u64 + 1);
        self.plan.budget_ns.min(all_ns).max(elapsed_ns.saturating_add(rest_ns))
    }

    /// Time that the fewest blocks with a verdict take, if that is more than the budget. Known from the end of the
    /// warm-up on, and better after a block that counts.
    pub fn lacks_time(&self) -> Option<TimeNeeded> {
        let blocks = self.plan.min_blocks;
        let missing = u64::from(blocks.saturating_sub(self.quiet_blocks()));
        let block_ns = self.expected_ns();
        let ended_ns: u64 = self.durations_ns.iter().sum();
        let whole_ns = ended_ns.saturating_add(block_ns.saturating_mul(missing));
        (whole_ns > self.plan.budget_ns).then_some(TimeNeeded { blocks, block_ns, whole_ns })
    }

    /// Needs of the figures that are open, from their noise so far; `None` before the eighth block, and if none is open.
    ///
    /// - `is_open`: of an arm and a judged metric.
    pub(crate) fn forecast_of(
        &self,
        table: &Table,
        is_open: &dyn Fn(usize, &str) -> bool,
    ) -> Option<Forecast> {
        let blocks = f64::from(self.blocks());
        if self.blocks() < FORECAST_AFTER || self.plan.resolve <= 1.0 {
            return None;
        }
        let finds = table.finds(is_open)?.ln();
        // The error of a median falls with the root of the number of blocks.
        let needed = blocks * (finds / self.plan.resolve.ln()).powi(2);
        let needed = needed.clamp(blocks, f64::from(u32::MAX));
        let block_ns = self.mean_block_ns().max(1) as f64;
        let spent_ns = self.elapsed_ns.min(self.plan.budget_ns);
        let left_ns = self.plan.budget_ns - spent_ns;
        let until = (blocks + left_ns as f64 / block_ns).min(f64::from(self.plan.max_blocks));
        Some(Forecast {
            blocks: needed.ceil() as u32,
            whole_ms: ((spent_ns as f64 + (needed - blocks) * block_ns) / 1e6) as u64,
            reaches: (finds * (blocks / until.max(blocks)).sqrt()).exp(),
        })
    }

    /// Needs of the arms that still run, from their noise so far; `None` before the eighth block, and if none is open.
    pub fn forecast(&self) -> Option<Forecast> {
        self.forecast_of(&Table::new(self), &|arm, _| self.is_open(arm))
    }

    /// Returns the outcome so far; may be called at any time.
    pub fn outcome(&self, header: OutcomeHeader) -> Outcome {
        crate::account::outcome(self, header)
    }

    fn runs(&self, arm: usize) -> bool {
        self.plan.arms[arm].1.is_yes() && !self.pools[arm].hopeless && self.is_open(arm)
    }

    /// True until an arm is decided.
    pub(crate) fn is_open(&self, arm: usize) -> bool {
        self.decided[arm].is_none()
    }

    /// True if a figure that is not decided by now stays so: at a look, and after the planned end.
    pub(crate) fn is_complete(&self) -> bool {
        self.looking
            || matches!(self.ended, Some(Ended::Settled | Ended::TimeUp | Ended::BlockLimit))
    }

    /// True for arms that are compared with the baseline, and can run here.
    pub(crate) fn can_be_judged(&self, arm: usize) -> bool {
        let (arm, support) = &self.plan.arms[arm];
        matches!(arm.kind, ArmKind::Variant | ArmKind::Peer) && support.is_yes()
    }

    /// The arm whose members are to be decided.
    pub(crate) fn set_arm(&self) -> Option<usize> {
        let set = self.plan.members.as_ref()?.set.as_str();
        self.plan.arms.iter().position(|(arm, _)| arm.name == set)
    }

    /// Arms that lack one member of the set, which may be the baseline.
    pub(crate) fn rests(&self, set: usize) -> impl Iterator<Item = usize> {
        let members = &self.plan.arms[set].0.switches;
        let is_rest = move |arm: &Arm| {
            arm.kind != ArmKind::Control
                && arm.switches.len() + 1 == members.len()
                && arm.switches.iter().all(|switch| members.contains(switch))
        };
        let arms = self.plan.arms.iter().enumerate();
        arms.filter(move |(_, (arm, _))| is_rest(arm)).map(|(at, _)| at)
    }

    /// Evidence of all looks, that of the planned end included.
    pub(crate) fn evidence(&self, table: &Table) -> RunEvidence {
        let mut seen = self.seen.clone();
        let has_time_ended = matches!(self.ended, Some(Ended::TimeUp | Ended::BlockLimit));
        // A user who saw the first end of a run chose to have another.
        if has_time_ended && !self.resumed && self.blocks() > 0 {
            let look = Look::at_end(self.blocks(), seen.looks.len());
            table.look(&mut seen, look);
        }
        seen
    }

    /// Blocks that count towards the limits: noisy ones are left out, up to a third of the rest. All of
    /// them stay in the pairing.
    fn quiet_blocks(&self) -> u32 {
        let blocks = self.blocks();
        blocks - self.noisy_blocks.min(blocks / 4)
    }

    /// Expected duration of a block: the mean of the last three, without the warm-up once another has ended.
    fn expected_ns(&self) -> u64 {
        let count = self.durations_ns.len();
        let last = &self.durations_ns[count.saturating_sub(3).max(usize::from(count > 1))..];
        last.iter().sum::<u64>() / last.len().max(1) as u64
    }

    /// Mean duration of a block that counts.
    pub(crate) fn mean_block_ns(&self) -> u64 {
        let counted = self.durations_ns.get(1..).unwrap_or_default();
        counted.iter().sum::<u64>() / counted.len().max(1) as u64
    }

    fn begin_block(&mut self) {
        self.block = self.durations_ns.len() as u32;
        self.block_started_ns = self.elapsed_ns;
        self.block_running = true;
        self.queue = self.order_of_block();
        if self.settles() {
            self.queue = self.queue.iter().flat_map(|&arm| [arm, arm]).collect();
        }
        self.queue.reverse();
    }

    /// Arms of the present block that run, in order.
    fn order_of_block(&self) -> Vec<usize> {
        let (seed, block) = (self.plan.seed, self.block);
        let running: Vec<bool> = (0..self.plan.arms.len()).map(|arm| self.runs(arm)).collect();
        let baselines = (self.place(ArmKind::Baseline), self.place(ArmKind::Control));
        if let (Order::Balanced, (Some(base), Some(again))) = (self.plan.schedule.order, baselines)
            && running[base]
            && running[again]
        {
            let is_other = |arm: &usize| running[*arm] && ![base, again].contains(arm);
            let others: Vec<usize> = (0..running.len()).filter(is_other).collect();
            if let Some(balanced) = balanced_order(seed, block, [base, again], &others) {
                return balanced;
            }
        }
        let mut random = order(seed, block, running.len());
        random.retain(|&arm| running[arm]);
        random
    }

    /// True if each trial of the present block runs after a settling trial of its arm.
    fn settles(&self) -> bool {
        self.plan.schedule.settle && self.block > 0
    }

    /// True if the next trial of this arm, which has one more in this block, is a settling trial.
    fn is_settling(&self, arm: usize) -> bool {
        let has_settled = |last: &Trial| last.block == self.block && last.arm == arm && last.warmup;
        self.settles() && !self.trials.last().is_some_and(has_settled)
    }

    fn end_block(&mut self) {
        if !std::mem::take(&mut self.block_running) {
            return;
        }
        self.durations_ns.push(self.elapsed_ns - self.block_started_ns);
        let block = self.block;
        let mut trials = self.trials.iter().rev().take_while(|trial| trial.block == block);
        if block > 0 && trials.any(|trial| trial.noisy) {
            self.noisy_blocks += 1;
        }
    }

    /// Called between blocks; returns the reason for the end if no further block is to begin.
    fn why_end(&mut self) -> Option<Ended> {
        let baseline = self.place(ArmKind::Baseline);
        if baseline.is_none_or(|arm| !self.runs(arm)) {
            self.warnings.push(Warning {
                what: "the baseline cannot run here, so there is nothing to compare with".into(),
                advice: "see the errors of its trials, and run again".into(),
            });
            return Some(Ended::Interrupted);
        }
        let (blocks, quiet) = (self.blocks(), self.quiet_blocks());
        if blocks == 0 {
            // The warm-up always runs, and one block that counts if any time is left.
            let is_over = !self.durations_ns.is_empty() && self.elapsed_ns >= self.plan.budget_ns;
            return is_over.then(|| self.time_up());
        }
        if quiet >= self.plan.max_blocks {
            return Some(Ended::BlockLimit);
        }
        let block_ns = self.expected_ns();
        let fits = self.elapsed_ns.saturating_add(block_ns) <= self.plan.budget_ns;
        if quiet >= self.plan.min_blocks {
            let look = look_after(blocks, self.plan.min_blocks);
            if let Some(look) = look.filter(|_| self.plan.stop_early)
                && self.is_settled_by(look)
            {
                return Some(Ended::Settled);
            }
            return (!fits).then_some(Ended::TimeUp);
        }
        (!fits).then(|| self.time_up())
    }

    /// The end of a run whose time was too little for a verdict.
    fn time_up(&mut self) -> Ended {
        let blocks = self.blocks();
        if let Some(needed) = self.lacks_time() {
            self.warnings.push(Warning {
                what: format!(
                    "only {blocks} of {} blocks fit into --time: a block takes {:.1} s",
                    needed.blocks,
                    needed.block_ns as f64 / 1e9
                ),
                advice: format!(
                    "give --time {}s or fewer arms: so many verdicts need {} blocks",
                    needed.whole_s(),
                    needed.blocks
                ),
            });
        }
        Ended::TimeUp
    }

    pub(crate) fn place(&self, kind: ArmKind) -> Option<usize> {
        self.plan.arms.iter().position(|(arm, _)| arm.kind == kind)
    }

    /// Looks at the figures; arms that are decided do not run again. Returns true if no arm is open.
    ///
    /// A control that differs from the baseline invalidates all verdicts, and more blocks are the remedy: no arm is decided then.
    fn is_settled_by(&mut self, look: Look) -> bool {
        for arm in self.look(look) {
            self.decided[arm] = Some(look.blocks);
        }
        let has_decided = self.decided.iter().any(Option::is_some);
        has_decided
            && (0..self.plan.arms.len()).all(|arm| !self.can_be_judged(arm) || !self.runs(arm))
    }

    /// Adds a look to the evidence; returns the arms that it decides.
    fn look(&mut self, look: Look) -> Vec<usize> {
        self.looking = true;
        let mut seen = std::mem::take(&mut self.seen);
        let table = Table::new(self);
        table.look(&mut seen, look);
        let decided = self.decided_by(&table, &seen);
        (self.seen, self.looking) = (seen, false);
        decided
    }

    /// Running arms that the evidence decides.
    fn decided_by(&self, table: &Table, seen: &RunEvidence) -> Vec<usize> {
        let given = |name: &String| table.arms.iter().any(|arm| arm.contains_key(name.as_str()));
        if !self.plan.judged.iter().any(given) {
            // A misspelt metric must not pass for a settled one.
            return Vec::new();
        }
        let judged = table.judge(seen);
        let control = self.place(ArmKind::Control);
        let is_distrusted = |name: &String| {
            control.and_then(|arm| judged.verdict(arm, name)).is_some_and(Verdict::differs)
        };
        if self.plan.judged.iter().any(is_distrusted) {
            return Vec::new();
        }
        let gate = table.gate(&judged, seen);
        let set = self.set_arm();
        let is_rest = |arm: usize| set.is_some_and(|set| self.rests(set).any(|rest| rest == arm));
        let has_open_rest = set.is_some_and(|set| {
            let mut rests = self.rests(set).filter(|rest| self.runs(*rest));
            rests.any(|rest| !table.is_member_decided(seen, rest))
        });
        let running = (0..self.plan.arms.len()).filter(|&arm| self.runs(arm)).count();
        let must_wait = carry_over::lacks_blocks(self, running);
        let is_large = |arm: usize, name: &String| {
            let ratio = table.outcome(&judged, arm, name).ratio;
            ratio.is_some_and(|ratio| ratio.ln().abs() > LARGE.ln())
        };
        let is_decided = |arm: usize| {
            if must_wait && !self.plan.judged.iter().all(|name| is_large(arm, name)) {
                return false;
            }
            if let Some(gate) = &gate {
                return gate.is_arm_decided(&self.plan.arms[arm].0.name);
            }
            if is_rest(arm) {
                return table.is_member_decided(seen, arm);
            }
            // A set is compared with each set that lacks a member.
            (Some(arm) != set || !has_open_rest)
                && self.plan.judged.iter().all(|name| {
                    // A figure that was given and not judged is open.
                    match judged.verdict(arm, name) {
                        None => !table.arms[arm].contains_key(name.as_str()),
                        Some(Verdict::Inconclusive | Verdict::Exploratory) => false,
                        Some(_) => true,
                    }
                })
        };
        let running =
            (0..self.plan.arms.len()).filter(|&arm| self.can_be_judged(arm) && self.runs(arm));
        running.filter(|&arm| is_decided(arm)).collect()
    }
}

/// Latencies of the segments of which a tail is judged, by stem.
fn tails(judged: &[String], measurement: &Measurement) -> BTreeMap<String, Samples> {
    let is_judged = |stem: &str| {
        judged.iter().filter_map(|name| tail_of(name)).any(|(judged, _)| judged == stem)
    };
    (measurement.segments.iter())
        .map(|(segment, histogram)| (crate::segment_stem(segment), histogram))
        .filter(|(stem, _)| is_judged(stem))
        .map(|(stem, histogram)| {
            let lost = measurement.lost_beside(histogram.len());
            (stem, Samples::new(histogram, lost))
        })
        .collect()
}

impl Pool {
    fn add(&mut self, measurement: &Measurement) {
        for (segment, histogram) in &measurement.segments {
            let new = || (crate::latency_histogram(), 0.0);
            let (pooled, lost) = self.latency.entry(segment.clone()).or_insert_with(new);
            *lost += measurement.lost_beside(histogram.len());
            // A histogram cannot hold more samples than its total counts.
            if pooled.len().checked_add(histogram.len()).is_none() {
                continue;
            }
            if pooled.add(histogram).is_err() {
                for bucket in histogram.iter_recorded() {
                    let (value, count) = (bucket.value_iterated_to(), bucket.count_at_value());
                    pooled.saturating_record_n(value, count);
                }
            }
        }
        for (name, value) in &measurement.mode {
            let seen = self.mode.entry(name.clone()).or_default();
            if !seen.contains(value) {
                seen.push(value.clone());
            }
        }
        for (name, count) in &measurement.counters {
            let counter = self.counters.entry(name.clone()).or_default();
            *counter = counter.saturating_add(*count);
        }
    }
}
