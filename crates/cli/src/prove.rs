//! `wirepath prove`: one experiment from its arms to its verdicts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, Subcommand};
use host::exclusive::{Activity, ExclusiveLock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{
    Arm, ArmPlan, Clock, Ended, Experiment, ExperimentPlan, Finished, Gain, Machine, Measurement,
    Member, Outcome, OutcomeHeader, Replayed, RunComparison, Search, Sink, Support, TrialRecord,
    Trials,
};
use model::{Load, LoadKind, Path, Session};
use report::store::{ExperimentHeader, SqliteStore, Store, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::against::{self, Builds};
use crate::best::{self, BEST};
use crate::context::Context;
use crate::exit::Failure;
use crate::lookup::{self, find_load, find_path};
use crate::series::{SeriesArgs, SeriesDocument};
use crate::shared_args::{BaselineArgs, LimitArgs, RunArgs};
use crate::trials::one_arm;
use crate::{console, far_args, machine, results, series, signals};

#[derive(Debug, Subcommand)]
pub(crate) enum ProveCommand {
    /// Prove which of your own programs or settings is better: any command as an arm
    ///
    /// Every command has the variables $WIREPATH_NEAR and $WIREPATH_FAR (addresses of client and server),
    /// $WIREPATH_PORT, $WIREPATH_ARM and $WIREPATH_TRIAL. Quote commands with ' so that your shell does not expand them.
    #[command(after_help = "\
Example:
  wirepath prove command --arm a=./main --arm b=./pr --client ./bench --metric 'p99_us=re:p99 (.+)'
  wirepath prove command --server ./s --switch tso=off --client ./bench --metric 'rps=json:/rps'
  wirepath prove command experiment.toml --check
  wirepath prove command --resume 20261123-104821")]
    Command(Box<crate::command::CommandArgs>),
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    #[command(subcommand)]
    command: Option<ProveCommand>,
    /// Path to measure
    #[arg(default_value = "probe", value_parser = lookup::PATH)]
    pub(crate) path: String,
    /// Arms: ladder, alone, leave-one-out, a list such as spin,spin+batch, or best: search for the smallest
    /// set that does most; default: ladder, with --against the baseline
    #[arg(long, value_parser = lookup::ARMS, hide_possible_values = true)]
    pub(crate) arms: Option<String>,
    /// Other programs to run as arms, e.g. iperf3,sockperf
    #[arg(long, value_delimiter = ',', value_parser = lookup::PEER)]
    pub(crate) peers: Vec<String>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) series: SeriesArgs,
    /// Compare this program with another build of it, both in one run: the arm `old` against `new`, with
    /// the switches of --arms on in both
    #[arg(long, value_name = "PROGRAM", group = "earlier", conflicts_with_all = ["peers", "host", "baseline"])]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) baseline: BaselineArgs,
}

impl ProveArgs {
    fn arms(&self) -> &str {
        let default = if self.against.is_some() { "baseline" } else { "ladder" };
        self.arms.as_deref().unwrap_or(default)
    }
}

pub(crate) fn run(context: &Context, args: &ProveArgs) -> Result<(), Failure> {
    if let Some(ProveCommand::Command(args)) = &args.command {
        return crate::command::run(context, args);
    }
    let path = find_path(&args.path)?;
    let kind = find_load(path.as_ref(), args.run.load.as_deref())?;
    let load = load_of(kind, &args.run)?;
    if args.arms() == BEST && args.against.is_none() {
        let proven = best::prove(context, args, path.as_ref(), kind, &load)?;
        if context.json {
            console::json(&proven.searched(true))?;
        } else {
            console::text(&report::text::ladder(&proven.outcome, console::style()))?;
            proven.say_where();
        }
        return proven.verdict();
    }
    let switches = model::ids(path.switches());
    let plan = ArmPlan::parse(args.arms(), &switches).map_err(Failure::usage)?;
    let arms = match &args.against {
        Some(_) => against::arms(&one_arm(&plan)?),
        None => model::arms(&plan, &switches, &args.peers, &mut |arm| path.support(arm, &load)),
    };
    if let Some((_, Support::Unsupported { what, needs })) = arms.first() {
        return Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")));
    }
    check_peers(path.as_ref(), &args.peers)?;
    let mut proof = Proof::new(path.name(), kind, &load, arms, &args.run.limits);
    proof.load.insert("arms".to_owned(), args.arms().to_owned());
    let earlier = series::earlier(context, args, &proof)?;
    let proven = match args.series.runs {
        1 => vec![once(context, args, path.as_ref(), &load, proof)?],
        _ => series::repeat(&args.series, &args.run.limits)?,
    };
    let Some(last) = proven.last() else { return Err(Failure::failed("no run")) };
    // An outcome without a baseline cannot be compared; its verdict reports that failure.
    let measured = |run: &&Proven| run.outcome.arms.first().is_some_and(|a| !a.metrics.is_empty());
    let news: Vec<Outcome> = proven.iter().filter(measured).map(|r| r.outcome.clone()).collect();
    let compared = match earlier.filter(|_| !news.is_empty()) {
        Some(olds) => Some(results::compare(&olds, &news)?),
        None => None,
    };
    if context.json && args.series.runs > 1 {
        let runs = proven.iter().map(|run| run.document(None)).collect();
        console::json(&SeriesDocument { runs, comparison: compared.as_ref() })?;
    } else if context.json {
        console::json(&Document { comparison: compared.as_ref(), ..last.document(None) })?;
    } else {
        console::text(&report::text::ladder(&last.outcome, console::style()))?;
        if args.series.runs > 1 {
            console::text(&report::text::repeated(&news, console::style()))?;
        }
        if let Some(compared) = &compared {
            console::text("")?;
            console::text(&report::text::compare(compared, console::style()))?;
        }
        last.say_where();
        series::say(&proven);
    }
    proven.iter().try_for_each(Proven::verdict)?;
    let least = args.baseline.threshold.ratio();
    if args.against.is_some() && args.baseline.fail_on.is_some() {
        return proven
            .iter()
            .try_for_each(|run| against::judge(&run.outcome, least, "the old program"));
    }
    compared.map_or(Ok(()), |compared| results::judge(&compared, args.baseline.fail_on, least))
}

/// Runs the experiment once, in this process.
fn once(
    context: &Context,
    args: &ProveArgs,
    path: &dyn Path,
    load: &Load,
    mut proof: Proof<'_>,
) -> Result<Proven, Failure> {
    let _lock = lock()?;
    let mut session: Box<dyn Session> = match &args.against {
        None => path.open(load)?,
        Some(old) => {
            let builds = Builds::start(old, proof.path, load, &proof.arms[0].0)?;
            let which = format!("{} ({})", old.display(), builds.old_version());
            proof.load.insert("against".to_owned(), which);
            Box::new(builds)
        }
    };
    conduct(context, &args.run.limits, proof, session.as_mut(), None)
}

/// An experiment to run: arms of a path under a load.
#[derive(Clone)]
pub(crate) struct Proof<'a> {
    pub(crate) path: &'a str,
    /// Metrics of the verdict, most important first.
    pub(crate) judged: Vec<String>,
    /// The load's parameters, which are stored with the result.
    pub(crate) load: BTreeMap<String, String>,
    pub(crate) arms: Vec<(Arm, Support)>,
    /// The search that chose the arms.
    pub(crate) search: Option<Search>,
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
        Proof { path, judged, load: parameters(load, limits), arms, search: None }
    }
}

/// An experiment that goes on after its last stored trial.
pub(crate) struct Resumed {
    pub(crate) header: OutcomeHeader,
    pub(crate) seed: u64,
    /// In order of execution.
    pub(crate) trials: Vec<TrialRecord>,
}

/// A finished experiment.
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

/// Sets the limits given on the command line; a maximum alone lowers the minimum.
fn limit_blocks(plan: &mut ExperimentPlan, args: &LimitArgs) {
    let least = model::statistics::PAIRS_MIN as u32;
    let max = args.max_blocks.unwrap_or(plan.max_blocks).max(least);
    plan.min_blocks = args.min_blocks.unwrap_or(plan.min_blocks.min(max)).max(least);
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
    let (header, stored, seed) = match resumed {
        Some(Resumed { header, seed, trials }) => (header, trials, seed),
        None => {
            let (header, started_ns) = header(&proof, machine::of(session))?;
            (header, Vec::new(), args.seed.unwrap_or(started_ns))
        }
    };
    let (budget_ns, cpus) = (args.time.as_nanos() as u64, header.machine.cpus);
    let mut plan = ExperimentPlan::new(seed, proof.arms, proof.judged, budget_ns, cpus);
    limit_blocks(&mut plan, args);
    let store = if args.no_history { None } else { Some(results::open(context)?) };
    let is_stored = store.is_some();
    let mut recorder = Recorder { store, bar: progress_bar(), seconds: args.time.as_secs() };
    let mut trials = SessionTrials(session);
    let stop = signals::stop_flag();
    let Some(last) = stored.last() else {
        let clock = Since(Instant::now());
        let Finished { outcome, gave_up } =
            model::run(plan, header, &mut trials, &clock, &mut recorder, stop)?;
        return Ok(Proven { outcome, is_stored, gave_up });
    };
    let before_ns = last.started_ms * 1_000_000 + last.wall_ns;
    let mut experiment = Experiment::new(plan);
    experiment.replay(stored).map_err(|Replayed { trials }| {
        Failure::failed(format!(
            "trial {trials} of {} is not the one that this version orders there, so it cannot be \
             resumed; start a new experiment",
            header.id
        ))
    })?;
    let clock = Continued { before_ns, since: Instant::now() };
    let Finished { outcome, gave_up } =
        model::resume(experiment, header, &mut trials, &clock, &mut recorder, stop)?;
    Ok(Proven { outcome, is_stored, gave_up })
}

pub(crate) struct Since(pub(crate) Instant);

impl Clock for Since {
    fn elapsed_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// Time of a resumed experiment: up to the end of its last stored trial, and from now on.
struct Continued {
    before_ns: u64,
    since: Instant,
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
}

/// Stores each trial as it ends and draws the progress bar.
struct Recorder {
    store: Option<SqliteStore>,
    bar: ProgressBar,
    seconds: u64,
}

impl Sink for Recorder {
    type Error = StoreError;

    fn begin(&mut self, header: &OutcomeHeader, plan: &ExperimentPlan) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        store.begin(&ExperimentHeader {
            id: header.id.clone(),
            started: header.started.clone(),
            path: header.path.clone(),
            load: header.load.clone(),
            machine: header.machine.clone(),
            seed: plan.seed,
            arms: plan.arms.iter().map(|(arm, _)| arm.clone()).collect(),
            version: header.version.clone(),
        })
    }

    fn next(&mut self, block: u32, arm: &Arm, progress: f64) {
        self.bar.set_position((progress * 1000.0) as u64);
        self.bar.set_message(format!("of {} s, block {block}: {}", self.seconds, arm.name));
    }

    fn trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.save_trial(id, trial))
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

    /// Errors: no measurement of the baseline, or a run that was given up.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        match self.outcome.arms.first() {
            Some(arm) if arm.trials == 0 || arm.metrics.is_empty() => {
                let why = match (arm.failures.first(), self.outcome.ended) {
                    (Some(why), _) => why,
                    (None, Ended::Interrupted) => "interrupted before its first trial that counts",
                    (None, _) => "no trial was completed",
                };
                Err(Failure::failed(format!("the baseline gave no measurement: {why}")))
            }
            _ if self.gave_up => Err(Failure::failed(
                "the run was given up because its last trials all failed; earlier results are kept, and \
                 `wirepath history show` lists the errors",
            )),
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
    Ok(Load {
        kind: kind.name.to_owned(),
        size_bytes: size_bytes(kind, args.size)?,
        rate_pps: args.rate.unwrap_or(kind.rate_pps),
        trial: args.trial.unwrap_or(kind.trial),
        far: args.far.read()?,
    })
}

/// Refuses peers that no load of the path supports. A peer that only another load supports becomes
/// an unsupported arm.
fn check_peers(path: &dyn Path, peers: &[String]) -> Result<(), Failure> {
    let known: BTreeSet<&str> = path.loads().iter().flat_map(|l| l.peers).copied().collect();
    let Some(unknown) = peers.iter().find(|p| !known.contains(p.as_str())) else { return Ok(()) };
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(Failure::Usage(format!("no peer named {unknown}; peers: {known}")))
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

/// Parameters of a load that are stored with the result.
pub(crate) fn parameters(load: &Load, args: &LimitArgs) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::from([
        ("kind".to_owned(), load.kind.clone()),
        ("trial_ms".to_owned(), load.trial.as_millis().to_string()),
        ("time_ms".to_owned(), args.time.as_millis().to_string()),
    ]);
    if load.size_bytes > 0 {
        parameters.insert("size_bytes".to_owned(), load.size_bytes.to_string());
    }
    if load.rate_pps > 0 {
        parameters.insert("rate_pps".to_owned(), load.rate_pps.to_string());
    }
    parameters.extend(load.far.iter().flat_map(far_args::parameters));
    parameters
}

/// Description of the experiment, and the nanoseconds since 1970 at which it starts.
fn header(proof: &Proof<'_>, machine: Machine) -> Result<(OutcomeHeader, u64), Failure> {
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
