//! One experiment in an open session, from its first trial to its verdicts.

use std::time::{Duration, Instant};

use model::{
    Arm, ArmKind, BlockOrder, Clock, Experiment, ExperimentPlan, FinishedRun, Forecast, Limits,
    Measurement, Members, Outcome, OutcomeHeader, Replayed, RunProgress, Schedule, Search, Session,
    Sink, Support, TimeNeeded, TrialRecord, Trials,
};
use remote::Failure;
use report::store::{ExperimentHeader, SqliteStore, Store, StoreError};

use crate::console::Console;
use crate::header::{header, session_machine};
use crate::proof::{Proof, Proven, Resumed};
use crate::runner::Runner;

/// Members of the set that a search found, which decide when its experiment ends; `None` for an empty set.
fn members(search: &Search, arms: &[(Arm, Support)]) -> Option<Members> {
    let (set, _) = arms.iter().find(|(arm, _)| {
        arm.kind == ArmKind::Variant
            && arm.switches.len() == search.set.len()
            && search.set.iter().all(|id| arm.switches.iter().any(|switch| switch.as_str() == id))
    })?;
    Some(Members { set: set.name.clone(), metric: search.metric.clone() })
}

/// Plan of the experiment; a maximum of blocks alone lowers the minimum.
fn plan(proof: Proof, limits: &Limits, seed: u64, schedule: Schedule, cpus: u32) -> ExperimentPlan {
    let budget_ns = limits.time.as_nanos() as u64;
    let mut plan = ExperimentPlan::new(seed, proof.arms, proof.judged, budget_ns, cpus);
    (plan.gate, plan.deciding, plan.resolve) = (proof.gate, proof.deciding, limits.resolve);
    plan.members = proof.search.as_ref().and_then(|search| members(search, &plan.arms));
    plan.schedule = schedule;
    let max = limits.max_blocks.unwrap_or(plan.max_blocks);
    plan.min_blocks = limits.min_blocks.unwrap_or(plan.min_blocks.min(max));
    plan.max_blocks = max.max(plan.min_blocks);
    plan
}

/// Time of an experiment: all of the user's, or the rest after a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// From here on its time counts: the labs and programs that it needs are part of it.
    pub(crate) begun: Instant,
    /// Share of the user's time that its limit is.
    pub(crate) share: f64,
}

impl Timing {
    /// All of the user's time.
    pub(crate) fn whole(begun: Instant) -> Self {
        Timing { begun, share: 1.0 }
    }
}

/// Runs an experiment in an open session, from its first trial to its verdicts.
///
/// - `resumed`: the experiment that is continued; `None` for a new one.
///
/// Errors: the trials of a resumed experiment are not those that the proof orders.
pub(crate) fn conduct(
    runner: &Runner<'_>,
    limits: &Limits,
    timing: Timing,
    proof: Proof,
    session: &mut dyn Session,
    resumed: Option<Resumed>,
) -> Result<Proven, Failure> {
    let (header, stored, seed, schedule) = match resumed {
        Some(Resumed { header, seed, schedule, trials }) => (header, Some(trials), seed, schedule),
        None => {
            let (header, started_ns) = header(&proof, session_machine(session))?;
            let schedule = Schedule { order: BlockOrder::Balanced, settle: limits.settle };
            (header, None, limits.seed.unwrap_or(started_ns), schedule)
        }
    };
    // A part of a run that goes on draws other numbers than the parts before.
    let ran = stored.as_ref().map_or(0, Vec::len) as u64;
    session.seed(seed.wrapping_add(ran));
    let (is_stored, trial) = (proof.is_stored, proof.trial);
    let mut plan = plan(proof, limits, seed, schedule, header.machine.cpus);
    plan.share = timing.share;
    let short = trial.filter(|_| stored.is_none()).and_then(|trial| lacks_time(&plan, trial));
    short.iter().for_each(|needed| runner.console.say(&report::forecast::lacks(needed)));
    let is_short = short.is_some();
    let store = is_stored.then(|| runner.database.open()).transpose()?;
    let (resolve, time) = (plan.resolve, limits.time);
    let mut recorder = Recorder { store, console: runner.console, is_short, resolve, time, timing };
    let mut trials = SessionTrials(session);
    let last = stored.as_ref().and_then(|stored| stored.last());
    let clock = Continued::after(last, timing.begun);
    let Some(stored) = stored else {
        let FinishedRun { outcome, gave_up } =
            model::run(plan, header, &mut trials, &clock, &mut recorder, runner.stop)?;
        return Ok(Proven { outcome, is_stored, gave_up, broken: None });
    };
    let mut experiment = Experiment::new(plan);
    experiment.replay(stored).map_err(|Replayed { trials }| {
        Failure::failed(format!(
            "trial {trials} of {} is not the one that this version orders there, so it cannot be \
             resumed; start a new experiment",
            header.id
        ))
    })?;
    let FinishedRun { outcome, gave_up } =
        model::resume(experiment, header, &mut trials, &clock, &mut recorder, runner.stop)?;
    Ok(Proven { outcome, is_stored, gave_up, broken: None })
}

/// Time that a verdict takes at least, if that is more than is given, by the declared length of a trial.
fn lacks_time(plan: &ExperimentPlan, trial: Duration) -> Option<TimeNeeded> {
    let arms = plan.arms.iter().filter(|(_, support)| support.is_yes()).count() as u32;
    let trials = if plan.schedule.settle { 2 * arms } else { arms };
    let (blocks, block_ns) = (plan.min_blocks, (trial * trials).as_nanos() as u64);
    let least_ns = block_ns.saturating_mul(u64::from(blocks) + 1);
    let whole_ns = (least_ns as f64 / plan.share) as u64;
    (least_ns > plan.budget_ns).then_some(TimeNeeded { blocks, block_ns, whole_ns })
}

/// Time of an experiment: up to the end of its last stored trial, if it is resumed, and from now on.
pub(crate) struct Continued {
    before_ns: u64,
    since: Instant,
}

impl Continued {
    /// - `since`: begin of this process's part.
    pub(crate) fn after(last: Option<&TrialRecord>, since: Instant) -> Self {
        let before_ns = last.map_or(0, |last| last.started_ms * 1_000_000 + last.wall_ns);
        Continued { before_ns, since }
    }
}

impl Clock for Continued {
    fn elapsed_ns(&self) -> u64 {
        self.before_ns + self.since.elapsed().as_nanos() as u64
    }
}

/// Trials of an open session; an error becomes one line of text.
pub(crate) struct SessionTrials<'a>(pub(crate) &'a mut dyn Session);

impl Trials for SessionTrials<'_> {
    fn trial(&mut self, arm: &Arm) -> Result<Measurement, String> {
        self.0.trial(arm).map_err(|error| host::text::chain(&error))
    }

    fn begin_block(&mut self) {
        self.0.begin_block();
    }
}

/// Stores each trial as it ends and shows progress.
struct Recorder<'a> {
    store: Option<SqliteStore>,
    console: &'a dyn Console,
    /// True if the user knows that the time does not suffice for a verdict.
    is_short: bool,
    /// Resolution, as a ratio above 1.
    resolve: f64,
    /// Time given.
    time: Duration,
    timing: Timing,
}

impl Sink for Recorder<'_> {
    type Error = StoreError;

    fn begin(&mut self, header: &OutcomeHeader, plan: &ExperimentPlan) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let arms = plan.arms.iter().map(|(arm, _)| arm.clone()).collect();
        store.begin(&ExperimentHeader::new(header, plan.seed, plan.schedule, arms))
    }

    fn next(&mut self, arm: &Arm, progress: &RunProgress) {
        let done = progress.elapsed_ns.saturating_mul(1000) / progress.end_ns.max(1);
        self.console.progress(done, &report::forecast::progress(progress), &arm.name);
    }

    fn lacks_time(&mut self, needed: &TimeNeeded) {
        if !std::mem::replace(&mut self.is_short, true) {
            self.console.say(&report::forecast::lacks(needed));
        }
    }

    fn plans(&mut self, forecast: &Forecast) {
        let Timing { share, .. } = self.timing;
        let whole_ms = (forecast.whole_ms as f64 / share) as u64;
        let (forecast, time) = (Forecast { whole_ms, ..*forecast }, self.time.div_f64(share));
        self.console.say(&report::forecast::plan(&forecast, self.resolve, time));
    }

    fn trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.save_trial(id, trial))
    }

    fn block(&mut self, outcome: &dyn Fn() -> Outcome) {
        self.console.result_so_far(outcome);
    }

    fn finish(&mut self, outcome: &Outcome) -> Result<(), StoreError> {
        self.console.end_progress();
        let Some(store) = &mut self.store else { return Ok(()) };
        store.save_outcome(outcome)?;
        store.finish(&outcome.id, outcome.ended)
    }
}
