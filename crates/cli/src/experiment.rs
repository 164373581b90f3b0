//! One experiment: its arms, its trials in an open session, its document.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use host::exclusive::{Activity, ExclusiveLock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{
    Arm, ArmKind, Clock, Ended, Experiment, ExperimentPlan, Finished, Forecast, Gain, Load,
    LoadKind, Machine, Measurement, Member, Members, Order, Outcome, OutcomeHeader, Replayed,
    RunComparison, Schedule, Search, Session, Sink, Support, TimeNeeded, TrialRecord, Trials,
};
use remote::Failure;
use report::store::{ExperimentHeader, SqliteStore, Store, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::context::Context;
use crate::shared_args::{IpVersion, LimitArgs, RunArgs, resolve_text, vlan_text};
use crate::{console, far_args, machine, results, signals};

/// An experiment to run: arms of a path under a load.
#[derive(Clone)]
pub(crate) struct Proof<'a> {
    pub(crate) path: &'a str,
    /// Metrics of the verdict, most important first.
    pub(crate) judged: Vec<String>,
    /// The load's parameters, which are stored with the result.
    pub(crate) load: BTreeMap<String, String>,
    pub(crate) arms: Vec<(Arm, Support)>,
    pub(crate) search: Option<Search>,
    /// Measured part of a trial; `None` if only a trial shows it.
    pub(crate) trial: Option<Duration>,
    /// True if no arm may be worse by more than the resolution (`--fail-on`).
    pub(crate) gate: bool,
}

impl<'a> Proof<'a> {
    /// Arms under one of a path's loads.
    pub(crate) fn new(
        path: &'a str,
        kind: &LoadKind,
        load: &Load,
        arms: Vec<(Arm, Support)>,
        limits: &LimitArgs,
    ) -> Self {
        let judged = kind.judged.iter().map(|&name| name.to_owned()).collect();
        let (trial, load) = (Some(load.trial), parameters(load, limits));
        Proof { path, judged, load, arms, search: None, trial, gate: false }
    }
}

/// An experiment that goes on after its last stored trial.
pub(crate) struct Resumed {
    pub(crate) header: OutcomeHeader,
    pub(crate) seed: u64,
    pub(crate) schedule: Schedule,
    /// In order of execution.
    pub(crate) trials: Vec<TrialRecord>,
}

pub(crate) struct Proven {
    pub(crate) outcome: Outcome,
    pub(crate) is_stored: bool,
    pub(crate) gave_up: bool,
}

/// Document of `prove --json` and `tune prove --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    #[serde(flatten)]
    outcome: Cow<'a, Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a RunComparison>,
    /// Worth of each member of the set that `--arms best` found.
    #[serde(skip_serializing_if = "Option::is_none")]
    members: Option<Vec<Member>>,
    /// Worth of each setting on top of those before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<Gain>>,
}

/// Members of the set that a search found, which decide when its experiment ends; `None` for an empty set.
fn members(search: &Search, arms: &[(Arm, Support)]) -> Option<Members> {
    let has_all = |arm: &Arm| {
        arm.kind == ArmKind::Variant
            && arm.switches.len() == search.set.len()
            && search.set.iter().all(|id| arm.switches.iter().any(|switch| switch.as_str() == id))
    };
    let (set, _) = arms.iter().find(|(arm, _)| has_all(arm))?;
    Some(Members { set: set.name.clone(), metric: search.metric.clone() })
}

/// Sets the limits given on the command line; a maximum alone lowers the minimum.
fn limit_blocks(plan: &mut ExperimentPlan, args: &LimitArgs) {
    let max = args.max_blocks.unwrap_or(plan.max_blocks);
    plan.min_blocks = args.min_blocks.unwrap_or(plan.min_blocks.min(max));
    plan.max_blocks = max.max(plan.min_blocks);
}

/// Runs a proof in an open session, from its first trial to its verdicts.
///
/// - `resumed`: the experiment that is continued; `None` for a new one.
///
/// Errors: the trials of a resumed experiment are not those that the proof orders.
pub(crate) fn conduct(
    context: &Context,
    args: &LimitArgs,
    proof: Proof<'_>,
    session: &mut dyn Session,
    resumed: Option<Resumed>,
) -> Result<Proven, Failure> {
    if args.live && context.json {
        return Err(Failure::Usage("--live prints tables; remove --json".into()));
    }
    let new = Schedule { order: Order::Balanced, settle: args.settle };
    let (header, stored, seed, schedule) = match resumed {
        Some(Resumed { header, seed, schedule, trials }) => (header, Some(trials), seed, schedule),
        None => {
            let (header, started_ns) = header(&proof, machine::of(session))?;
            (header, None, args.seed.unwrap_or(started_ns), new)
        }
    };
    let (budget_ns, cpus) = (args.time.as_nanos() as u64, header.machine.cpus);
    let mut plan = ExperimentPlan::new(seed, proof.arms, proof.judged, budget_ns, cpus);
    (plan.gate, plan.resolve) = (proof.gate, args.resolve.ratio());
    plan.members = proof.search.as_ref().and_then(|search| members(search, &plan.arms));
    plan.schedule = schedule;
    limit_blocks(&mut plan, args);
    let is_short = stored.is_none() && proof.trial.is_some_and(|trial| say_if_short(&plan, trial));
    let store = if args.no_history { None } else { Some(results::open(context)?) };
    let is_stored = store.is_some();
    let bar = if args.live { ProgressBar::hidden() } else { progress_bar() };
    let (resolve, time) = (plan.resolve, args.time);
    let mut recorder = Recorder { store, bar, is_short, live: args.live, resolve, time };
    let mut trials = SessionTrials(session);
    let stop = signals::stop_flag();
    let clock = Continued::after(stored.as_ref().and_then(|stored| stored.last()));
    let Some(stored) = stored else {
        let Finished { outcome, gave_up } =
            model::run(plan, header, &mut trials, &clock, &mut recorder, stop)?;
        return Ok(Proven { outcome, is_stored, gave_up });
    };
    let mut experiment = Experiment::new(plan);
    experiment.replay(stored).map_err(|Replayed { trials }| {
        Failure::failed(format!(
            "trial {trials} of {} is not the one that this version orders there, so it cannot be \
             resumed; start a new experiment",
            header.id
        ))
    })?;
    let Finished { outcome, gave_up } =
        model::resume(experiment, header, &mut trials, &clock, &mut recorder, stop)?;
    Ok(Proven { outcome, is_stored, gave_up })
}

/// Says before the first trial that the time cannot suffice for a verdict, if trials alone take more. Returns true if
/// it did.
fn say_if_short(plan: &ExperimentPlan, trial: Duration) -> bool {
    let arms = plan.arms.iter().filter(|(_, support)| support.is_yes()).count() as u32;
    let trials = if plan.schedule.settle { 2 * plan.min_blocks } else { plan.min_blocks };
    let least = trial * arms * (trials + 1);
    let is_short = least.as_nanos() as u64 > plan.budget_ns;
    if is_short {
        console::say(&format!(
            "{arms} arms with trials of {} ms take at least {} s for the {} blocks that a verdict needs: this run ends \
             without one; give more --time, or fewer arms",
            trial.as_millis(),
            least.as_secs_f64().ceil(),
            plan.min_blocks
        ));
    }
    is_short
}

/// Time of an experiment: up to the end of its last stored trial, if it is resumed, and from now on.
pub(crate) struct Continued {
    before_ns: u64,
    since: Instant,
}

impl Continued {
    pub(crate) fn after(last: Option<&TrialRecord>) -> Self {
        let before_ns = last.map_or(0, |last| last.started_ms * 1_000_000 + last.wall_ns);
        Continued { before_ns, since: Instant::now() }
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

/// Stores each trial as it ends and draws the progress bar.
struct Recorder {
    store: Option<SqliteStore>,
    bar: ProgressBar,
    /// True if the user knows that the time does not suffice for a verdict.
    is_short: bool,
    live: bool,
    /// Resolution, as a ratio above 1.
    resolve: f64,
    /// Time given.
    time: Duration,
}

impl Sink for Recorder {
    type Error = StoreError;

    fn begin(&mut self, header: &OutcomeHeader, plan: &ExperimentPlan) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let arms = plan.arms.iter().map(|(arm, _)| arm.clone()).collect();
        store.begin(&ExperimentHeader::new(header, plan.seed, plan.schedule, arms))
    }

    fn next(&mut self, block: u32, arm: &Arm, elapsed_ns: u64, end_ns: u64) {
        let end_s = end_ns.div_ceil(1_000_000_000);
        self.bar.set_position(elapsed_ns.saturating_mul(1000) / end_ns.max(1));
        self.bar.set_message(format!("of {end_s} s, block {block}: {}", arm.name));
    }

    fn lacks_time(&mut self, needed: &TimeNeeded) {
        if std::mem::replace(&mut self.is_short, true) {
            return;
        }
        let say = || {
            console::say(&format!(
                "a block takes {:.1} s, and {} blocks are needed for a verdict: this run ends without one; give \
                 --time {}s",
                needed.block_ns as f64 / 1e9,
                needed.blocks,
                needed.whole_s()
            ));
        };
        self.bar.suspend(say);
    }

    fn plans(&mut self, forecast: &Forecast) {
        let say = || console::say(&report::forecast::plan(forecast, self.resolve, self.time));
        self.bar.suspend(say);
    }

    fn trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.save_trial(id, trial))
    }

    fn block(&mut self, outcome: &dyn Fn() -> Outcome) {
        if self.live {
            let text = report::text::ladder(&outcome(), console::style());
            // The result at the end reports why nothing can be printed.
            let _shown = console::screen(&text);
        }
    }

    fn finish(&mut self, outcome: &Outcome) -> Result<(), StoreError> {
        self.bar.finish_and_clear();
        let Some(store) = &mut self.store else { return Ok(()) };
        store.save_outcome(outcome)?;
        store.finish(&outcome.id, outcome.ended)
    }
}

impl Proven {
    /// - `steps`: of `tune prove`.
    pub(crate) fn document(&self, steps: Option<Vec<Gain>>) -> Document<'_> {
        let outcome = report::json::finite(&self.outcome);
        Document { outcome, comparison: None, members: None, steps }
    }

    pub(crate) fn compared<'a>(&'a self, comparison: Option<&'a RunComparison>) -> Document<'a> {
        Document { comparison, ..self.document(None) }
    }

    /// The document, with the worth of each member of a set that a search found.
    pub(crate) fn searched(&self, is_search: bool) -> Document<'_> {
        let members = is_search.then(|| self.outcome.members());
        Document { members, ..self.document(None) }
    }

    /// Prints the id under which it is stored.
    pub(crate) fn say_where(&self) {
        if self.is_stored {
            console::say(&format!(
                "stored as {}; a page with plots: wirepath report {} --html report.html",
                self.outcome.id, self.outcome.id
            ));
        }
    }

    /// Errors: no measurement of the baseline, a run that was given up, or one that a signal ended.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let is_interrupted = self.outcome.ended == Ended::Interrupted && signals::stop_requested();
        match self.outcome.arms.first() {
            Some(arm) if arm.trials == 0 && arm.failures.is_empty() && is_interrupted => {
                Err(Failure::Interrupted("interrupted before the first trial that counts".into()))
            }
            Some(arm) if arm.trials == 0 || arm.metrics.is_empty() => {
                let why = match (arm.failures.first(), self.outcome.ended) {
                    (Some(why), _) => why,
                    (None, Ended::Interrupted) => "interrupted before its first trial that counts",
                    (None, Ended::TimeUp) => {
                        "--time was up after the warm-up; a warning of the result says how much a verdict takes"
                    }
                    (None, _) => "no trial was completed",
                };
                Err(Failure::failed(format!("the baseline gave no measurement: {why}")))
            }
            _ if self.gave_up => Err(Failure::failed(
                "the run was given up because its last trials all failed; earlier results are kept, and \
                 `wirepath history show` lists the errors",
            )),
            _ if is_interrupted => Err(Failure::Interrupted(format!(
                "interrupted after {}; the result so far is above",
                console::count(self.outcome.blocks as usize, "block")
            ))),
            _ => Ok(()),
        }
    }
}

/// Takes the experiment lock; `explain` cannot run while it is held.
pub(crate) fn lock() -> Result<ExclusiveLock, Failure> {
    ExclusiveLock::acquire(Activity::Measuring)
        .map_err(|conflict| Failure::failed(conflict.to_string()))
}

/// The load with the values of the arguments.
pub(crate) fn load_of(kind: &LoadKind, args: &RunArgs) -> Result<Load, Failure> {
    if args.far.direction.is_some() && kind.name != "flood" {
        return Err(Failure::Usage(format!(
            "load {} has no direction to choose: remove --direction, which is for load flood of path probe",
            kind.name
        )));
    }
    Ok(Load {
        kind: kind.name.to_owned(),
        size_bytes: size_bytes(kind, args.size)?,
        rate_pps: args.rate.unwrap_or(kind.rate_pps),
        trial: args.trial.unwrap_or(kind.trial),
        ipv6: IpVersion::is_v6(args.ip),
        vlan_tag: args.vlan,
        far: args.far.read()?,
    })
}

/// Datagram size; a load whose messages have fixed sizes refuses another.
fn size_bytes(kind: &LoadKind, asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        Some(_) if kind.size_bytes == 0 => Err(Failure::Usage(format!(
            "load {} defines its own message sizes; remove --size",
            kind.name
        ))),
        _ => Ok(asked.unwrap_or(kind.size_bytes)),
    }
}

/// Name of the resolution among the parameters that are stored with the result.
pub(crate) const RESOLVE_KEY: &str = "resolve";

/// Parameters of a load that are stored with the result.
pub(crate) fn parameters(load: &Load, args: &LimitArgs) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::from([
        ("kind".to_owned(), load.kind.clone()),
        ("trial_ms".to_owned(), load.trial.as_millis().to_string()),
        (RESOLVE_KEY.to_owned(), resolve_text(args.resolve.ratio())),
        ("time_ms".to_owned(), args.time.as_millis().to_string()),
    ]);
    if load.size_bytes > 0 {
        parameters.insert("size_bytes".to_owned(), load.size_bytes.to_string());
    }
    if load.rate_pps > 0 {
        parameters.insert("rate_pps".to_owned(), load.rate_pps.to_string());
    }
    if args.settle {
        parameters.insert("settle".to_owned(), "yes".to_owned());
    }
    if load.ipv6 {
        parameters.insert("ip".to_owned(), "6".to_owned());
    }
    if let Some(tag) = load.vlan_tag {
        parameters.insert("vlan".to_owned(), vlan_text(tag));
    }
    parameters.extend(load.far.iter().flat_map(far_args::parameters));
    parameters
}

/// Description of the experiment, and the nanoseconds since 1970 at which it starts.
pub(crate) fn header(proof: &Proof<'_>, machine: Machine) -> Result<(OutcomeHeader, u64), Failure> {
    let now = OffsetDateTime::now_utc();
    let format =
        |e: time::error::Format| Failure::failed(format!("cannot format the system time: {e}"));
    let stamp = now
        .format(format_description!("[year][month][day]-[hour][minute][second]"))
        .map_err(format)?;
    let started_ns = now.unix_timestamp_nanos() as u64;
    let unique = (started_ns / 1000) as u16 ^ std::process::id() as u16;
    let header = OutcomeHeader {
        id: format!("{stamp}-{}-{unique:04x}", proof.path),
        started: now.format(&Rfc3339).map_err(format)?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine,
        path: proof.path.to_owned(),
        load: proof.load.clone(),
        search: proof.search.clone(),
    };
    Ok((header, started_ns))
}

pub(crate) fn progress_bar() -> ProgressBar {
    if !console::is_watched() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
