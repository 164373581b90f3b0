//! `wirepath tune prove --live`: the worth of a plan on the running service, under its own traffic.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use host::exclusive::{Activity, ExclusiveLock};
use host::text::chain;
use host::tune::{Place, Plan, Reaches, SwitchError, SwitchedPlan, System};
use house::args::parse_duration;
use house::console;
use house::context::{Context, DOCUMENT};
use house::next::{self, CommandLine};
use house::place::StateArgs;
use house::signals;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use live::conduct::{
    ConductError, LiveRun, Observer, RunOptions, ServiceFigures, SystemClock, check_rules, conduct,
};
use live::sources::{LiveError, MetricSpec, Service, SourceSpec, Sources, Wanted};
use model::Verdict;
use model::live::{GuardRule, LiveEnd, LiveForecast, LiveOutcome, LivePeriodRecord};
use remote::Failure;
use report::live::{LiveAbsent, LiveProof, LiveSetting};
use report::page::LivePage;
use sys::clock::{monotonic_ns, realtime_ns};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::kept;
use crate::guard::Guard;
use crate::results;

/// Share of the requests that the setting has to reach.
const REACH_MIN: f64 = 0.9;

/// Time before the first switch that the forecast needs at least.
const BASELINE_MIN: Duration = Duration::from_secs(15);

/// How a plan is proved on a running service.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "On the running service: with --port N, --pid or --unit, and --metric"
)]
pub(super) struct LiveArgs {
    /// Switch the plan on and off on the running service; in random order, under its own traffic: a guard undoes it at once
    /// if requests hang, fail or are slow
    #[arg(long, conflicts_with_all = [
        "arms", "path", "from", "forward", "near", "at", "switch", "load", "size", "rate", "trial", "ip", "vlan", "time",
        "min_blocks", "max_blocks", "settle", "host", "server", "client", "feed", "beside", "adapter", "stages", "runs",
        "every", "watch", "verbose",
    ])]
    pub(super) live: bool,
    /// The service: this process and its children
    #[arg(long, hide_short_help = true, value_name = "PID", requires = "live", conflicts_with_all = ["port", "unit"])]
    pid: Option<u32>,
    /// The service: this unit of systemd
    #[arg(long, value_name = "NAME", requires = "live", conflicts_with = "port")]
    unit: Option<String>,
    /// Time from the first switch on
    #[arg(long = "for", value_name = "TIME", default_value = "30m", requires = "live", value_parser = parse_duration)]
    run_time: Duration,
    /// Time before it, in which nothing is switched: it tells how long the run has to be
    #[arg(long, hide_short_help = true, value_name = "TIME", default_value = "3m", requires = "live", value_parser = parse_duration)]
    baseline: Duration,
    /// Undo the plan for the rest of the run if this is shown: 'FIGURE > 2x' or 'errors > 0.1%'; may be repeated
    #[arg(long, value_name = "RULE", requires = "live")]
    guard: Vec<GuardRule>,
    /// Figure that decides how long the run has to be: cpu_per_request, p50, p99, errors, or a metric's name
    #[arg(long, value_name = "FIGURE", requires = "live")]
    primary: Option<String>,
    /// Start of each period that no figure counts; default: four times the p99 of a request, at least 0.5 s
    #[arg(long, value_name = "TIME", requires = "live", value_parser = parse_duration)]
    washout: Option<Duration>,
    /// Do not confirm what is better in periods of 80 s, which take the last third of the time
    #[arg(long, requires = "live")]
    no_confirm: bool,
    /// Write a page with each period to this file
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "live")]
    html: Option<PathBuf>,
}

/// Options that a live proof shares with others.
pub(super) struct Shared<'a> {
    pub(super) plan: (&'a Plan, &'a Path),
    pub(super) rebase: &'a super::apply::RebaseArgs,
    pub(super) port: Option<u16>,
    pub(super) metrics: &'a [String],
    /// Ratio above 1.
    pub(super) resolve: f64,
    pub(super) seed: Option<u64>,
    pub(super) keep: Option<&'a Path>,
    pub(super) is_stored: bool,
    pub(super) name: Option<String>,
    pub(super) note: Option<String>,
}

impl LiveArgs {
    fn service(&self, port: Option<u16>) -> Option<Service> {
        port.map(Service::Port)
            .or(self.pid.map(Service::Pid))
            .or(self.unit.clone().map(Service::Unit))
    }
}

pub(super) fn run(
    context: &Context,
    state: &StateArgs,
    args: &LiveArgs,
    shared: &Shared<'_>,
) -> Result<(), Failure> {
    shared.keep.map_or(Ok(()), kept::check_free)?;
    if args.baseline < BASELINE_MIN {
        let least = BASELINE_MIN.as_secs();
        return Err(Failure::Usage(format!(
            "--baseline takes at least {least}s: the forecast needs as much"
        )));
    }
    let now = OffsetDateTime::now_utc();
    let metrics = metrics(shared.metrics)?;
    let (plan, plan_file) = shared.plan;
    let place = Place { netns: plan.netns.clone(), root: state.root.clone() };
    let system = System::open(&place)?;
    let plan = shared.rebase.plan(plan.clone(), &system, &state.store())?;
    let service = args.service(shared.port);
    let service_name = name_of(service.as_ref());
    let netns = plan.netns.is_some().then(|| place.netns_file());
    let sources =
        Sources::open(&SourceSpec { service, netns, metrics }).map_err(sources_failure)?;
    let absent = absent(&sources);
    let mut figures = ServiceFigures::new(sources, args.primary.as_deref()).map_err(|known| {
        Failure::Usage(format!(
            "--primary: the figures of this run are {}",
            known.join(", ")
        ))
    })?;
    check_rules(&args.guard, live::conduct::Figures::figures(&figures)).map_err(Failure::usage)?;
    let _lock =
        ExclusiveLock::acquire(Activity::Live).map_err(|why| Failure::failed(why.to_string()))?;
    let guard = Guard::start(&state.journal())?;
    let mut switched = SwitchedPlan::open(system, &plan, state.store(), signals::stop_flag())
        .map_err(|why| switch_failure(&why))?;
    check_reach(&mut switched, &mut figures)?;
    let settings = settings(&switched);
    let mut terminal = Terminal::new(context);
    let options = RunOptions {
        baseline: args.baseline,
        time: args.run_time,
        resolve: shared.resolve,
        seed: shared.seed.unwrap_or_else(realtime_ns),
        washout: args.washout,
        confirm: !args.no_confirm,
        rules: args.guard.clone(),
    };
    let (clock, stop) = (&mut SystemClock, signals::stop_flag());
    let run = conduct(clock, &mut figures, &mut switched, &mut terminal, &options, stop);
    terminal.end();
    let restored = restore(&mut switched);
    drop(switched);
    drop(guard);
    let run = match (run, restored) {
        (Ok(run), Ok(())) => run,
        (Ok(_), Err(why)) | (Err(_), Err(why)) => return Err(why),
        (Err(why), Ok(())) => return Err(conduct_failure(why)),
    };
    let is_interrupted = run.is_interrupted;
    let proof =
        document(run, now, shared, Described { service: service_name, settings, absent }, &plan)?;
    show(context, args, &proof, shared.is_stored)?;
    if let (Some(file), false) = (shared.keep, is_interrupted) {
        keep(context, state, (&plan, plan_file), &proof, file)?;
    }
    verdict(&proof, is_interrupted)
}

/// Restores every setting. Errors: one could not be.
fn restore(switched: &mut SwitchedPlan) -> Result<(), Failure> {
    let report =
        switched.finish("the live proof is over").map_err(|why| Failure::from_chain(&why))?;
    match report.failure() {
        None => Ok(()),
        Some(why) => Err(Failure::failed(format!(
            "rollback is incomplete: {why}; `wirepath tune rollback` tries again"
        ))),
    }
}

fn metrics(texts: &[String]) -> Result<Vec<MetricSpec>, Failure> {
    texts.iter().map(|text| text.parse::<MetricSpec>().map_err(Failure::usage)).collect()
}

fn name_of(service: Option<&Service>) -> String {
    match service {
        Some(Service::Port(port)) => format!("port {port}"),
        Some(Service::Pid(pid)) => format!("process {pid}"),
        Some(Service::Unit(unit)) => format!("unit {unit}"),
        None => "figures of the service's own".to_owned(),
    }
}

fn absent(sources: &Sources) -> Vec<LiveAbsent> {
    let all = sources.absent().iter();
    all.map(|(figure, why)| LiveAbsent { figure: figure.clone(), why: why.clone() }).collect()
}

fn settings(switched: &SwitchedPlan) -> Vec<LiveSetting> {
    let setting = |step: &host::tune::ReadyStep| LiveSetting {
        knob: step.knob.id().to_owned(),
        target: step.target.to_string(),
        off: step.before.to_string(),
        on: step.value.to_string(),
    };
    switched.steps().map(setting).collect()
}

/// Switches a setting on that acts on new connections alone, counts the requests that it reaches, and switches it off.
///
/// Errors: it reaches too few, so that both arms would be the same.
fn check_reach(switched: &mut SwitchedPlan, figures: &mut ServiceFigures) -> Result<(), Failure> {
    match switched.reaches() {
        Reaches::AtOnce => return Ok(()),
        Reaches::NewListeners => {
            return Err(Failure::failed(
                "a setting of this plan reaches listening sockets only when they are opened, so the running service would \
                 not use it; prove it with a load, or leave it out",
            ));
        }
        Reaches::NewConnections => {}
    }
    let sources = figures.sources();
    if sources.ports().is_empty() {
        return Err(Failure::Usage(
            "a setting of this plan reaches new connections alone, so the service has to be named: --port, --pid or --unit"
                .into(),
        ));
    }
    console::say(
        "this plan reaches new connections alone: counting the requests on them, for up to 5 s",
    );
    sources.mark_connections().map_err(sources_failure)?;
    let after_ns = monotonic_ns();
    switched.turn(true).map_err(|why| switch_failure(&why))?;
    let reach = figures.sources().reach(&Wanted::NewSocketsOnly { after_ns });
    switched.turn(false).map_err(|why| switch_failure(&why))?;
    let reach = reach.map_err(sources_failure)?;
    match reach.share() {
        Some(share) if share >= REACH_MIN => Ok(()),
        share => Err(Failure::Undecided(format!(
            "no answer: the plan reaches new connections alone, and {} of the requests came on such; at least {:.0} % are \
             needed. Let the clients connect anew for each request, or prove the plan with a load",
            share.map_or("none".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            REACH_MIN * 100.0
        ))),
    }
}

fn sources_failure(error: LiveError) -> Failure {
    match error {
        LiveError::NoFigure { .. } | LiveError::NoListener { .. } | LiveError::NoPort { .. } => {
            Failure::usage(error)
        }
        error => Failure::from_chain(&error),
    }
}

fn switch_failure(error: &SwitchError) -> Failure {
    Failure::from_chain(error)
}

fn conduct_failure(error: ConductError) -> Failure {
    match error {
        ConductError::Interrupted => Failure::Interrupted(error.to_string()),
        ConductError::Refused(_) => Failure::Undecided(chain(&error)),
        ConductError::Guard(_) => Failure::usage(error),
        error => Failure::from_chain(&error),
    }
}

fn failed_by(error: impl std::error::Error) -> Failure {
    Failure::from_chain(&error)
}

/// Subject of the proof.
struct Described {
    service: String,
    settings: Vec<LiveSetting>,
    absent: Vec<LiveAbsent>,
}

fn document(
    run: LiveRun,
    begun: OffsetDateTime,
    shared: &Shared<'_>,
    of: Described,
    plan: &Plan,
) -> Result<LiveProof, Failure> {
    let whole = begun.replace_nanosecond(0).unwrap_or(begun);
    let started = whole.format(&Rfc3339).map_err(failed_by)?;
    Ok(LiveProof {
        document: DOCUMENT,
        id: runner::experiment_id(begun, LiveProof::MARK.trim_matches('-'))?,
        name: shared.name.clone(),
        note: shared.note.clone(),
        started,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: shared.plan.1.display().to_string(),
        plan_digest: plan.digest(),
        settings: of.settings,
        service: of.service,
        baseline: run.baseline,
        outcome: run.outcome,
        periods: run.periods,
        absent: of.absent,
        stopped: run.stopped,
    })
}

/// File of a stored live proof.
pub(crate) fn stored_file(context: &Context, id: &str) -> Result<PathBuf, Failure> {
    let is_name = !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !is_name {
        return Err(Failure::Usage(format!("{id:?} is not an id of a live proof")));
    }
    let database = results::database(context).file()?;
    Ok(database.with_file_name("live").join(format!("{id}.json")))
}

/// Prints, stores and writes the result.
fn show(
    context: &Context,
    args: &LiveArgs,
    proof: &LiveProof,
    is_stored: bool,
) -> Result<(), Failure> {
    if context.json {
        console::json(proof)?;
    } else {
        console::text(&report::text::live(&LivePage::from_proof(proof), console::style()))?;
    }
    if let Some(file) = &args.html {
        console::write_file(file, report::html::live_page(proof))?;
    }
    if !is_stored {
        return Ok(());
    }
    let file = stored_file(context, &proof.id)?;
    let stored = file.parent().map_or(Ok(()), fs::create_dir_all);
    stored.map_err(|why| {
        Failure::failed(format!("cannot create the folder of {}: {why}", file.display()))
    })?;
    let text = serde_json::to_string(proof).map_err(failed_by)?;
    host::output_file::write(&file, text.as_bytes()).map_err(failed_by)?;
    console::say(&format!("stored as {}", proof.id));
    if args.html.is_none() {
        let line = CommandLine::new("report").value(&proof.id).words("--html live.html");
        next::say(context, &line);
    }
    Ok(())
}

/// Writes the plan if a figure is better and none worse, and says how to keep it.
fn keep(
    context: &Context,
    state: &StateArgs,
    (plan, plan_file): (&Plan, &Path),
    proof: &LiveProof,
    file: &Path,
) -> Result<(), Failure> {
    if !is_kept(proof) {
        console::say(&format!("the plan is not shown to help: {} was not written", file.display()));
        return Ok(());
    }
    let mut text = format!(
        "# Settings of {} that help on the running service ({}), by experiment {}:\n",
        host::text::printable(&plan_file.to_string_lossy(), 200),
        host::text::printable(&proof.service, 200),
        proof.id
    );
    for sentence in report::answer::live_sentences(proof) {
        text.push_str(&format!("#   {}\n", host::text::printable(&sentence.text, 200)));
    }
    text.push('\n');
    text.push_str(&plan.to_text());
    kept::write_new(file, &text)?;
    console::say(&format!("wrote {}", file.display()));
    let line = CommandLine::as_root("tune apply").value(&file.to_string_lossy());
    next::say(context, &state.given_to(line.words("--confirm-within 2m")));
    Ok(())
}

/// True if a figure is better, none worse, and the run can be trusted.
fn is_kept(proof: &LiveProof) -> bool {
    let has = |wanted: Verdict| proof.outcome.verdicts.iter().any(|v| v.verdict == wanted);
    let is_sound = proof.outcome.trusted && proof.stopped.is_none() && !is_harm(&proof.outcome.end);
    is_sound && has(Verdict::Better) && !has(Verdict::Worse)
}

fn is_harm(end: &LiveEnd) -> bool {
    matches!(end, LiveEnd::Tripped | LiveEnd::SoftGuard { .. })
}

/// The end of the command by what the run found.
fn verdict(proof: &LiveProof, is_interrupted: bool) -> Result<(), Failure> {
    let outcome = &proof.outcome;
    if let Some(why) = &proof.stopped {
        return Err(Failure::failed(format!("the run ended early: {why}")));
    }
    if is_interrupted {
        return Err(Failure::Interrupted("interrupted; the result so far is above".into()));
    }
    if is_harm(&outcome.end) {
        let (why, _) = report::answer::live_end(proof);
        return Err(Failure::Threshold(why.replace("Ended: ", "worse: ")));
    }
    if !outcome.trusted {
        let (why, _) = report::answer::live_trust(outcome);
        return Err(Failure::Undecided(format!("not trusted: {why}")));
    }
    let worse = outcome.verdicts.iter().find(|verdict| verdict.verdict == Verdict::Worse);
    if let Some(worse) = worse {
        return Err(Failure::Threshold(format!("{} is worse with the plan", worse.figure)));
    }
    match outcome.verdicts.first() {
        Some(primary) if primary.verdict == Verdict::Inconclusive => {
            Err(Failure::Undecided(format!(
                "{} is not decided; give more time with --for, or a coarser --resolve",
                primary.figure
            )))
        }
        _ => Ok(()),
    }
}

/// Progress of a run.
struct Terminal {
    bar: ProgressBar,
    time_ns: u64,
    is_quiet: bool,
}

impl Terminal {
    fn new(context: &Context) -> Self {
        let bar = if console::is_watched() {
            let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("[{bar:6}] {wide_msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        } else {
            ProgressBar::hidden()
        };
        Terminal { bar, time_ns: 1, is_quiet: context.json }
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| console::say(text));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Terminal {
    fn baseline(&mut self, done_ns: u64, time_ns: u64) {
        self.bar.set_position(done_ns * 1000 / time_ns.max(1));
        let left_s = time_ns.saturating_sub(done_ns) / 1_000_000_000;
        self.bar.set_message(format!("baseline, nothing is switched: {left_s} s left"));
    }

    fn forecast(&mut self, forecast: &LiveForecast, time_ns: u64) {
        self.time_ns = time_ns.max(1);
        if !self.is_quiet {
            let seconds = |ns: u64| ns.div_ceil(1_000_000_000);
            self.say(&format!(
                "the primary figure needs about {} s of the {} s: {} pairs of periods of {} s",
                seconds(forecast.time_ns),
                seconds(time_ns),
                forecast.pairs,
                seconds(forecast.period_ns)
            ));
        }
    }

    fn progress(&mut self, elapsed_ns: u64, pairs: u32) {
        self.bar.set_position((elapsed_ns * 1000 / self.time_ns).min(1000));
        self.bar.set_message(format!("{} s, pair {}", elapsed_ns / 1_000_000_000, pairs + 1));
    }

    fn tripped(&mut self, period: &LivePeriodRecord) {
        let Some(trip) = &period.trip else { return };
        let undone = trip
            .undone_after_ns
            .map_or("it was off".to_owned(), |ns| format!("undone after {} ms", ns / 1_000_000));
        self.say(&format!("guard: {}; {undone}", trip.reason));
    }

    fn period(&mut self, _: &LivePeriodRecord, _: &dyn Fn() -> LiveOutcome) {}
}
