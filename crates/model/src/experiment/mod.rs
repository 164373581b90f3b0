//! The experiment as a state machine: it selects the next trial, records its result, and decides when
//! to stop. It runs nothing and reads no clock.

mod decided;
mod forecast;
mod needs;
mod plan;
mod restore;
mod trial;

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

pub use needs::{FORECAST_AFTER, Forecast, RunProgress, TimeNeeded};
pub use plan::{ExperimentPlan, Members, RESOLVE};
pub use trial::{Trial, TrialRecord};

use crate::evidence::RunEvidence;
use crate::metrics::tail_of;
use crate::schedule::balanced_order;
use crate::tail::Samples;
use crate::{
    Arm, ArmKind, BlockOrder, CpuSamples, Ended, Machine, Measurement, Phrases, Search, Support,
    Warning, order,
};
use stats::look_after;

/// Consecutive failures from the first block on after which an arm is not run again.
const HOPELESS_AFTER: u32 = 3;

/// Next action of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExperimentStep {
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

/// Extent of [`Experiment::replay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    pub trials: usize,
}

/// Metadata of an outcome; see the fields of [`Outcome`](crate::Outcome).
#[derive(Debug, Clone, Default)]
pub struct OutcomeHeader {
    pub id: String,
    pub name: Option<String>,
    pub note: Option<String>,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    pub version: String,
    pub machine: Machine,
    pub path: String,
    pub load: BTreeMap<String, String>,
    pub phrases: Phrases,
    pub search: Option<Search>,
}

/// Sums over the trials of an arm.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pool {
    /// By segment, with the datagrams lost beside them.
    pub(crate) latency: BTreeMap<String, (Histogram<u64>, f64)>,
    pub(crate) mode: BTreeMap<String, Vec<String>>,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) samples: Option<CpuSamples>,
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
/// while let ExperimentStep::Trial { arm, .. } = experiment.next(fake.now_ns()) {
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
    pub fn next(&mut self, elapsed_ns: u64) -> ExperimentStep {
        self.elapsed_ns = self.elapsed_ns.max(elapsed_ns);
        if let Some(ended) = self.ended {
            return ExperimentStep::Done(ended);
        }
        if let Some(trial) = &self.pending {
            return ExperimentStep::Trial {
                block: trial.block,
                arm: trial.arm,
                warmup: trial.warmup,
            };
        }
        if self.is_overdue() {
            self.ended = Some(Ended::TimeUp);
            return ExperimentStep::Done(Ended::TimeUp);
        }
        if self.queue.is_empty() {
            self.end_block();
            if let Some(ended) = self.why_end() {
                self.ended = Some(ended);
                return ExperimentStep::Done(ended);
            }
            self.begin_block();
        }
        let Some(arm) = self.queue.pop() else {
            // Reached only if no arm can run.
            self.ended = Some(Ended::Interrupted);
            return ExperimentStep::Done(Ended::Interrupted);
        };
        let (block, warmup) = (self.block, self.block == 0 || self.is_settling(arm));
        self.pending = Some(Trial::new(block, arm, warmup, self.elapsed_ns));
        ExperimentStep::Trial { block, arm, warmup }
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
            let is_same = matches!(step, ExperimentStep::Trial { block, arm, warmup }
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

    /// True once the warm-up has ended without a trial that succeeded: its programs cannot run here, or settings that they
    /// share are wrong, and no later block would differ.
    pub(crate) fn is_futile(&self) -> bool {
        let is_warm_up_over = !self.durations_ns.is_empty()
            || self.block_running && self.queue.is_empty() && self.pending.is_none();
        is_warm_up_over
            && self.trials.len() > 1
            && self.pools.iter().all(|pool| pool.successes == 0)
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

    /// Extent of the run at the trial that [`next`](Self::next) returned.
    ///
    /// - `elapsed_ns`: nanoseconds since the start of the experiment.
    pub fn progress(&self, elapsed_ns: u64) -> RunProgress {
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
        let end_ns = self.plan.budget_ns.min(all_ns).max(elapsed_ns.saturating_add(rest_ns));
        let left_ns = end_ns.saturating_sub(self.block_started_ns);
        let left = left_ns.checked_div(block_ns).filter(|_| self.block > 0);
        let blocks = left.map(|left| self.blocks().saturating_add(left.clamp(1, 1 << 20) as u32));
        RunProgress { block: self.block, blocks, elapsed_ns, end_ns }
    }

    /// Time that the fewest blocks with a verdict take, if that is more than the budget. Known from the end of the
    /// warm-up on, if even blocks of half its length do not fit: it has the first start of each program. Better known
    /// after a block that counts.
    pub fn lacks_time(&self) -> Option<TimeNeeded> {
        let blocks = self.plan.min_blocks;
        let missing = u64::from(blocks.saturating_sub(self.quiet_blocks()));
        let block_ns = self.expected_ns();
        let rest_ns = block_ns.saturating_mul(missing);
        let ended_ns = self.ended_ns();
        let surely_ns = if self.durations_ns.len() == 1 { rest_ns / 2 } else { rest_ns };
        if ended_ns.saturating_add(surely_ns) <= self.plan.budget_ns {
            return None;
        }
        let whole_ns = ended_ns.saturating_add(rest_ns) as f64 / self.plan.share;
        Some(TimeNeeded { blocks, block_ns, whole_ns: whole_ns as u64 })
    }

    /// End of the last block, nanoseconds since the start of the experiment; the set-up before the first block counts.
    fn ended_ns(&self) -> u64 {
        if self.block_running { self.block_started_ns } else { self.elapsed_ns }
    }

    /// True if the block under way takes so much longer than those before it that the run is past its time by more than
    /// one block. The warm-up is completed: without it nothing is known about the length of a block.
    fn is_overdue(&self) -> bool {
        let longest_ns = self.durations_ns.iter().max();
        self.block_running
            && !self.queue.is_empty()
            && longest_ns.is_some_and(|longest_ns| {
                self.elapsed_ns > self.plan.budget_ns.saturating_add(*longest_ns)
            })
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
        self.looking || self.ended.is_some_and(Ended::is_complete)
    }

    /// True for arms that are compared, and can run here.
    pub(crate) fn can_be_judged(&self, arm: usize) -> bool {
        let (arm, support) = &self.plan.arms[arm];
        arm.kind.is_compared() && support.is_yes()
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
        if let (BlockOrder::Balanced, (Some(base), Some(again))) =
            (self.plan.schedule.order, baselines)
            && running[base]
            && running[again]
        {
            let others: Vec<usize> = (0..running.len())
                .filter(|arm| running[*arm] && ![base, again].contains(arm))
                .collect();
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
        self.settles()
            && !self
                .trials
                .last()
                .is_some_and(|last| last.block == self.block && last.arm == arm && last.warmup)
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
}

/// Latencies of the segments of which a tail is judged, by stem.
fn tails(judged: &[String], measurement: &Measurement) -> BTreeMap<String, Samples> {
    (measurement.segments.iter())
        .map(|(segment, histogram)| (crate::segment_stem(segment), histogram))
        .filter(|(stem, _)| {
            judged.iter().filter_map(|name| tail_of(name)).any(|(judged, _)| judged == stem)
        })
        .map(|(stem, histogram)| {
            let lost = measurement.lost_beside(histogram.len());
            (stem, Samples::new(histogram, lost))
        })
        .collect()
}

impl Pool {
    fn add(&mut self, measurement: &Measurement) {
        for (segment, histogram) in &measurement.segments {
            let (pooled, lost) = self
                .latency
                .entry(segment.clone())
                .or_insert_with(|| (crate::latency_histogram(), 0.0));
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
        if let Some(samples) = &measurement.samples {
            self.samples.get_or_insert_default().add(samples);
        }
    }
}
