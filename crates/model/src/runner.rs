//! The loop that runs an experiment: asks for the next trial, runs it and records it.
//!
//! Time, trials and storage come in as traits, so the loop is tested without any of them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    Arm, Experiment, ExperimentPlan, ExperimentStep, FORECAST_AFTER, Forecast, Measurement,
    Outcome, OutcomeHeader, RunProgress, TimeNeeded, TrialRecord,
};

/// Blocks' worth of consecutive failed trials after which a run is given up: an error that all
/// arms share, such as a lost connection to a peer, does not go away.
const FAILED_BLOCKS_MAX: usize = 3;

pub trait Clock {
    fn elapsed_ns(&self) -> u64;
}

pub trait Trials {
    /// Runs one bounded trial of one arm. Errors: the reason in one line; the experiment goes on.
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String>;

    /// Called before the first trial of each block; see [`Session::begin_block`](crate::Session::begin_block).
    fn begin_block(&mut self) {}
}

/// Receives an experiment as it runs; an error ends the run.
pub trait Sink {
    /// Failure to store.
    type Error;

    /// Called once, before the first trial.
    fn begin(&mut self, header: &OutcomeHeader, plan: &ExperimentPlan) -> Result<(), Self::Error>;

    /// Called before each trial.
    fn next(&mut self, arm: &Arm, progress: &RunProgress);

    /// Called at most once, after the warm-up or the first block that counts, if the time does not suffice for a verdict.
    fn lacks_time(&mut self, _needed: &TimeNeeded) {}

    /// Called after the first [`FORECAST_AFTER`] blocks, unless the run is decided by then.
    fn plans(&mut self, _forecast: &Forecast) {}

    /// Called after each trial, warm-up and failures included.
    fn trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), Self::Error>;

    /// Called after each block that counts but the last. `outcome` computes the outcome so far, between
    /// trials; its verdicts hold at every look, and the others are exploratory.
    fn block(&mut self, _outcome: &dyn Fn() -> Outcome) {}

    /// Called once, after the last trial.
    fn finish(&mut self, outcome: &Outcome) -> Result<(), Self::Error>;
}

#[derive(Debug)]
pub struct FinishedRun {
    pub outcome: Outcome,
    /// True if the run was given up because every trial failed.
    pub gave_up: bool,
}

/// Runs an experiment until its plan is fulfilled, `stop` is set or nothing works any more.
///
/// Errors: those of `sink`.
pub fn run<S: Sink>(
    plan: ExperimentPlan,
    header: OutcomeHeader,
    trials: &mut dyn Trials,
    clock: &dyn Clock,
    sink: &mut S,
    stop: &AtomicBool,
) -> Result<FinishedRun, S::Error> {
    sink.begin(&header, &plan)?;
    resume(Experiment::new(plan), header, trials, clock, sink, stop)
}

/// Continues an experiment after its last recorded trial; `sink` is not asked to begin it.
///
/// - `clock`: time since the start of the experiment, that of the recorded trials included.
///
/// Errors: those of `sink`.
pub fn resume<S: Sink>(
    mut experiment: Experiment,
    header: OutcomeHeader,
    trials: &mut dyn Trials,
    clock: &dyn Clock,
    sink: &mut S,
    stop: &AtomicBool,
) -> Result<FinishedRun, S::Error> {
    let arms: Vec<Arm> = experiment.arms().iter().map(|(arm, _)| arm.clone()).collect();
    let mut ordinal = experiment.trials().len() as u32;
    let mut failed_in_a_row =
        experiment.trials().rev().take_while(|trial| trial.result.is_err()).count();
    let mut is_time_checked = experiment.blocks() > 0;
    let mut is_planned = experiment.blocks() > FORECAST_AFTER;
    let mut block_begun = None;
    let ended = loop {
        if stop.load(Ordering::Relaxed) || is_hopeless(&experiment, failed_in_a_row) {
            experiment.interrupt();
        }
        let blocks = experiment.blocks();
        let (block, arm, warmup) = match experiment.next(clock.elapsed_ns()) {
            ExperimentStep::Trial { block, arm, warmup } => (block, &arms[arm], warmup),
            ExperimentStep::Done(why) => break why,
        };
        if (block == 1 || block == 2) && block_begun != Some(block) && !is_time_checked {
            let needed = experiment.lacks_time();
            is_time_checked = needed.is_some();
            needed.iter().for_each(|needed| sink.lacks_time(needed));
        }
        if block == FORECAST_AFTER + 1 && !std::mem::replace(&mut is_planned, true) {
            experiment.forecast().iter().for_each(|forecast| sink.plans(forecast));
        }
        if experiment.blocks() > blocks {
            sink.block(&|| experiment.outcome(header.clone()));
        }
        if block_begun.replace(block) != Some(block) {
            trials.begin_block();
        }
        let started_ns = clock.elapsed_ns();
        sink.next(arm, &experiment.progress(started_ns));
        let result = trials.trial(arm);
        if result.is_err() && stop.load(Ordering::Relaxed) {
            // The stop broke it off; it says nothing about the arm.
            continue;
        }
        let record = TrialRecord {
            ordinal,
            block,
            arm: arm.name.clone(),
            warmup,
            noisy: result.as_ref().is_ok_and(|m| experiment.is_noisy(m)),
            started_ms: started_ns / 1_000_000,
            wall_ns: clock.elapsed_ns().saturating_sub(started_ns),
            result,
        };
        sink.trial(&header.id, &record)?;
        ordinal += 1;
        failed_in_a_row = if record.result.is_ok() { 0 } else { failed_in_a_row + 1 };
        experiment.record(record.result);
    };
    let mut outcome = experiment.outcome(header);
    outcome.ended = ended;
    outcome.wall_ms = clock.elapsed_ns() / 1_000_000;
    sink.finish(&outcome)?;
    Ok(FinishedRun { outcome, gave_up: is_hopeless(&experiment, failed_in_a_row) })
}

/// True if every trial so far failed, or the last ones did for several blocks.
fn is_hopeless(experiment: &Experiment, failed_in_a_row: usize) -> bool {
    experiment.is_futile() || failed_in_a_row >= FAILED_BLOCKS_MAX * experiment.arms().len()
}

#[cfg(test)]
pub(crate) mod tests;
