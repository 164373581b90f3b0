//! `wirepath prove`: one experiment from its arms to its verdicts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use host::turn::{Turn, Work};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::{
    Arm, ArmPlan, Ended, Experiment, ExperimentPlan, Outcome, OutcomeHeader, RunComparison, Step,
    Support,
};
use paths::{Load, LoadKind, Path, Session};
use report::store::{ExperimentHeader, SqliteStore, Store, TrialRecord};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::args::{BaselineArgs, Cli, ProveArgs, RunArgs};
use crate::end::Failure;
use crate::history::args::FailOn;
use crate::{console, fake, history, machine, stop};

pub(crate) fn run(cli: &Cli, args: &ProveArgs) -> Result<(), Failure> {
    let path = find_path(&args.path)?;
    let kind = find_load(path.as_ref(), args.run.load.as_deref())?;
    let load = load_of(kind, &args.run)?;
    let plan = ArmPlan::parse(&args.arms, path.switches())
        .map_err(|e| Failure::Usage(host::text::chain(&e)))?;
    let arms =
        model::arms(&plan, path.switches(), &args.peers, &mut |arm| path.support(arm, &load));
    if let Some((_, Support::Unsupported { what, needs })) = arms.first() {
        return Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")));
    }
    check_peers(path.as_ref(), &args.peers)?;
    let _turn = turn()?;
    let mut session = path.open(&load)?;
    let parameters = BTreeMap::from([("arms".to_owned(), args.arms.clone())]);
    let baseline = Some(&args.baseline);
    let proof = Proof { path: path.name(), kind, load: &load, arms, parameters, baseline };
    let proven = conduct(cli, &args.run, proof, session.as_mut())?;
    drop(session);
    if cli.json {
        let compared = proven.compared.as_ref();
        console::text(&report::json::with_comparison(&proven.outcome, compared))?;
    } else {
        console::text(&report::text::ladder(&proven.outcome, console::style()))?;
        if let Some(compared) = &proven.compared {
            console::text("")?;
            console::text(&report::text::compare(compared, console::style()))?;
        }
        proven.say_where();
    }
    proven.verdict()
}

/// What is to be proven, under what.
pub(crate) struct Proof<'a> {
    /// Name of the path.
    pub(crate) path: &'a str,
    pub(crate) kind: &'a LoadKind,
    pub(crate) load: &'a Load,
    pub(crate) arms: Vec<(Arm, Support)>,
    /// For the record, beyond what the load says.
    pub(crate) parameters: BTreeMap<String, String>,
    /// What to compare with in the end.
    pub(crate) baseline: Option<&'a BaselineArgs>,
}

/// What came of it.
pub(crate) struct Proven {
    pub(crate) outcome: Outcome,
    compared: Option<RunComparison>,
    fail_on: Option<FailOn>,
    is_stored: bool,
    gave_up: bool,
}

/// Runs a proof in an open session, from its first trial to its verdicts.
pub(crate) fn conduct(
    cli: &Cli,
    args: &RunArgs,
    proof: Proof<'_>,
    session: &mut dyn Session,
) -> Result<Proven, Failure> {
    let header = header(&proof, args, session.nic())?;
    let before = proof.baseline.map(|args| before(cli, args, &header)).transpose()?.flatten();
    let seed = args.seed.unwrap_or(header.started_ns);
    let judged = proof.kind.judged.iter().map(|&m| m.to_owned()).collect();
    let (budget_ns, cpus) = (args.time.as_nanos() as u64, header.machine.cpus);
    let mut plan = ExperimentPlan::new(seed, proof.arms, judged, budget_ns, cpus);
    plan.min_blocks = args.min_blocks.max(6);
    plan.max_blocks = args.max_blocks.unwrap_or(plan.max_blocks).max(plan.min_blocks);
    let mut experiment = Experiment::new(plan);
    let mut store = open_store(cli, args, &header, &experiment, seed)?;
    let (outcome, gave_up) = measure(&mut experiment, session, &header, store.as_mut(), args.time)?;
    if let Some(store) = store.as_mut() {
        store.save_outcome(&outcome)?;
        store.finish(&outcome.id, outcome.ended)?;
    }
    // An outcome without a baseline is compared with nothing: that failure is told by its verdict.
    let measured = outcome.arms.first().is_some_and(|arm| !arm.metrics.is_empty());
    let compared = match before.filter(|_| measured) {
        Some(before) => Some(history::compare::compare(&before, &outcome)?),
        None => None,
    };
    let fail_on = proof.baseline.and_then(|baseline| baseline.fail_on);
    Ok(Proven { outcome, compared, fail_on, is_stored: store.is_some(), gave_up })
}

impl Proven {
    /// Says where it can be found.
    pub(crate) fn say_where(&self) {
        if self.is_stored {
            console::say(&format!(
                "stored as {}; a page with plots: wirepath report {} --html report.html",
                self.outcome.id, self.outcome.id
            ));
        }
    }

    /// Whether it came to anything.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        match self.outcome.arms.first() {
            Some(arm) if arm.trials == 0 || arm.metrics.is_empty() => {
                let why = match (arm.failures.first(), self.outcome.ended) {
                    (Some(why), _) => why,
                    (None, Ended::Interrupted) => "interrupted before a trial of it that counts",
                    (None, _) => "no trial was completed",
                };
                Err(Failure::failed(format!("the baseline gave no measurement: {why}")))
            }
            _ if self.gave_up => Err(Failure::failed(
                "every trial failed in the end, and the run was broken off; what was measured \
                 before stands, and `wirepath history show` has the errors",
            )),
            _ => match &self.compared {
                Some(compared) => history::compare::judge(compared, self.fail_on),
                None => Ok(()),
            },
        }
    }
}

/// The right to measure: nobody follows packets meanwhile.
pub(crate) fn turn() -> Result<Turn, Failure> {
    Turn::take(Work::Measuring).map_err(|busy| Failure::failed(busy.to_string()))
}

/// A load as the arguments want it.
pub(crate) fn load_of(kind: &LoadKind, args: &RunArgs) -> Result<Load, Failure> {
    Ok(Load {
        kind: kind.name.to_owned(),
        size_bytes: sized(kind, args.size)?,
        rate_pps: args.rate.unwrap_or(kind.rate_pps),
        trial: args.trial.unwrap_or(kind.trial),
        far: args.peer.clone(),
        secret: crate::peer::secret(&args.secret)?,
    })
}

pub(crate) fn find_path(name: &str) -> Result<Box<dyn Path>, Failure> {
    if name == "fake" {
        return Ok(Box::new(fake::Fake));
    }
    let all = paths::all();
    let known = all.iter().map(|p| p.name()).collect::<Vec<_>>().join(", ");
    all.into_iter()
        .find(|p| p.name() == name)
        .ok_or_else(|| Failure::Usage(format!("no path named {name}; there are: {known}")))
}

/// Refuses peers that no load of the path knows; one that another load knows becomes an arm that
/// says so.
fn check_peers(path: &dyn Path, peers: &[String]) -> Result<(), Failure> {
    let known: BTreeSet<&str> = path.loads().iter().flat_map(|l| l.peers).copied().collect();
    let Some(unknown) = peers.iter().find(|p| !known.contains(p.as_str())) else { return Ok(()) };
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    Err(Failure::Usage(format!("no peer named {unknown}; there are: {known}")))
}

pub(crate) fn find_load(path: &dyn Path, name: Option<&str>) -> Result<&'static LoadKind, Failure> {
    let loads = path.loads();
    let Some(name) = name else { return Ok(&loads[0]) };
    let known = loads.iter().map(|l| l.name).collect::<Vec<_>>().join(", ");
    loads.iter().find(|l| l.name == name).ok_or_else(|| {
        Failure::Usage(format!("path {} has no load {name}; it has: {known}", path.name()))
    })
}

/// The size of datagrams, where the load leaves it open.
fn sized(kind: &LoadKind, asked: Option<usize>) -> Result<usize, Failure> {
    match asked {
        Some(_) if kind.size_bytes == 0 => Err(Failure::Usage(format!(
            "the messages of load {} have sizes of their own; leave --size out",
            kind.name
        ))),
        _ => Ok(asked.unwrap_or(kind.size_bytes)),
    }
}

/// What is known before the first trial.
struct Header {
    started_ns: u64,
    id: String,
    started: String,
    machine: model::Machine,
    path: String,
    load: BTreeMap<String, String>,
}

impl Header {
    fn of_outcome(&self) -> OutcomeHeader {
        OutcomeHeader {
            id: self.id.clone(),
            started: self.started.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: self.machine.clone(),
            path: self.path.clone(),
            load: self.load.clone(),
        }
    }
}

fn header(proof: &Proof<'_>, args: &RunArgs, nic: String) -> Result<Header, Failure> {
    let load = proof.load;
    let now = OffsetDateTime::now_utc();
    let format = |e: time::error::Format| Failure::failed(format!("the clock reads nonsense: {e}"));
    let stamp = now
        .format(format_description!("[year][month][day]-[hour][minute][second]"))
        .map_err(format)?;
    let started_ns = now.unix_timestamp_nanos() as u64;
    let unique = (started_ns / 1000) as u16 ^ std::process::id() as u16;
    let mut parameters = proof.parameters.clone();
    parameters.extend([
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
    if let Some(far) = &load.far {
        parameters.insert("peer".to_owned(), far.clone());
    }
    Ok(Header {
        started_ns,
        id: format!("{stamp}-{}-{unique:04x}", proof.path),
        started: now.format(&Rfc3339).map_err(format)?,
        machine: machine::describe(nic),
        path: proof.path.to_owned(),
        load: parameters,
    })
}

/// The experiment to compare with; refused before anything is measured if that could not be.
fn before(cli: &Cli, args: &BaselineArgs, header: &Header) -> Result<Option<Outcome>, Failure> {
    let Some(id) = &args.baseline else { return Ok(None) };
    let before = history::outcome_of(history::open_reading(cli)?.load(id)?);
    model::comparable(&before, "this run", &header.path, &header.load)
        .map_err(|e| Failure::Usage(e.to_string()))?;
    if before.machine.id != header.machine.id && !args.any_machine {
        return Err(Failure::Usage(format!(
            "{} ran on another machine, or on this one before its kernel, CPUs, memory or governor \
             changed; run the baseline again here, or compare all the same with --any-machine \
             (and --fail-on less-worth)",
            before.id
        )));
    }
    Ok(Some(before))
}

fn open_store(
    cli: &Cli,
    args: &RunArgs,
    header: &Header,
    experiment: &Experiment,
    seed: u64,
) -> Result<Option<SqliteStore>, Failure> {
    if args.no_history {
        return Ok(None);
    }
    let mut store = history::open(cli)?;
    store.begin(&ExperimentHeader {
        id: header.id.clone(),
        started: header.started.clone(),
        path: header.path.clone(),
        load: header.load.clone(),
        machine: header.machine.clone(),
        seed,
        arms: experiment.arms().iter().map(|(arm, _)| arm.clone()).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    Ok(Some(store))
}

/// Blocks' worth of trials that may fail in a row: what broke for all arms stays broken, such as
/// the connection to a peer.
const FAILED_BLOCKS_MAX: usize = 3;

/// Runs trials until the experiment says that it is over; saves each as it ends. Tells whether it
/// was given up because nothing worked any more.
fn measure(
    experiment: &mut Experiment,
    session: &mut dyn Session,
    header: &Header,
    mut store: Option<&mut SqliteStore>,
    budget: Duration,
) -> Result<(Outcome, bool), Failure> {
    let arms: Vec<Arm> = experiment.arms().iter().map(|(arm, _)| arm.clone()).collect();
    let bar = progress_bar();
    let begun = Instant::now();
    let mut ordinal = 0;
    let mut failed_in_a_row = 0;
    let ended = loop {
        let gave_up = failed_in_a_row >= FAILED_BLOCKS_MAX * arms.len();
        if stop::asked() || gave_up {
            experiment.interrupt();
        }
        let elapsed_ns = begun.elapsed().as_nanos() as u64;
        let (block, arm, warmup) = match experiment.next(elapsed_ns) {
            Step::Trial { block, arm, warmup } => (block, &arms[arm], warmup),
            Step::Done(why) => break why,
        };
        bar.set_position((experiment.progress(elapsed_ns) * 1000.0) as u64);
        bar.set_message(format!("of {} s, block {block}: {}", budget.as_secs(), arm.name));
        let trial_begun = Instant::now();
        let result = session.trial(arm).map_err(|e| host::text::chain(&e));
        let record = TrialRecord {
            ordinal,
            block,
            arm: arm.name.clone(),
            warmup,
            noisy: false,
            started_ms: elapsed_ns / 1_000_000,
            wall_ns: trial_begun.elapsed().as_nanos() as u64,
            result,
        };
        if let Some(store) = store.as_mut() {
            store.save_trial(&header.id, &record)?;
        }
        ordinal += 1;
        failed_in_a_row = if record.result.is_ok() { 0 } else { failed_in_a_row + 1 };
        experiment.record(record.result);
    };
    bar.finish_and_clear();
    let mut outcome = experiment.outcome(header.of_outcome());
    outcome.ended = ended;
    outcome.wall_ms = begun.elapsed().as_millis() as u64;
    Ok((outcome, failed_in_a_row >= FAILED_BLOCKS_MAX * arms.len()))
}

fn progress_bar() -> ProgressBar {
    if !console::is_watched() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
