//! `wirepath tune prove --live`: the worth of a plan on the running service, under its own traffic.

mod crossing;
mod progress;
mod result;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use host::exclusive::{Activity, ExclusiveLock};
use host::text::chain;
use host::tune::{Place, Plan, Reaches, SwitchError, SwitchedPlan, System};
use house::args::parse_duration;
use house::console;
use house::context::Context;
use house::place::StateArgs;
use house::signals;
use live::conduct::{
    ConductError, RunOptions, ServiceFigures, ServiceSwitch, Switch, SystemClock, check_rules,
    conduct,
};
use live::sources::{Connections, LiveError, MetricSpec, Service, SourceSpec, Sources, Wanted};
use model::live::{GuardRule, HardGuard, LiveArm};
use remote::Failure;
use report::live::{LiveAbsent, LiveSetting};
use sys::clock::{monotonic_ns, realtime_ns};
use time::OffsetDateTime;

pub(crate) use self::crossing::cross;
use self::progress::Terminal;
pub(crate) use self::result::stored_file;
use self::result::{Described, document, keep, show, verdict};
use super::apply::RebaseArgs;
use super::kept;
use crate::guard::Guard;

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
    /// Close the service's connections at each switch, so that its clients open new ones: for settings that reach new
    /// connections alone
    #[arg(long, hide_short_help = true, requires = "live")]
    close_connections: bool,
    /// Write a page with each period to this file
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "live")]
    html: Option<PathBuf>,
}

/// Options that a live proof shares with others.
pub(super) struct Shared<'a> {
    pub(super) plan: (&'a Plan, &'a Path),
    pub(super) rebase: &'a RebaseArgs,
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
    let service = args.service(shared.port);
    let service_name = name_of(service.as_ref());
    let place = Place { netns: plan.netns.clone(), root: state.root.clone() };
    let mut figures = figures(&place, service, metrics, args.primary.as_deref())?;
    let absent = absent(figures.sources());
    check_rules(&args.guard, live::conduct::Figures::figures(&figures)).map_err(Failure::usage)?;
    let _lock =
        ExclusiveLock::acquire(Activity::Live).map_err(|why| Failure::failed(why.to_string()))?;
    let guard = Guard::start(&state.journal())?;
    let (plan, mut switched) = switched(
        state,
        &place,
        plan,
        shared.rebase,
        closed(args.close_connections, &mut figures)?,
    )?;
    check_reach(&mut switched, &mut figures, &args.guard)?;
    let settings = settings(&switched.plan);
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
    let restored = restore(&mut switched.plan);
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

/// Figures of a service in the namespace of a plan.
///
/// - `primary`: the one that is put first.
fn figures(
    place: &Place,
    service: Option<Service>,
    metrics: Vec<MetricSpec>,
    primary: Option<&str>,
) -> Result<ServiceFigures, Failure> {
    let netns = place.netns.is_some().then(|| place.netns_file());
    let sources =
        Sources::open(&SourceSpec { service, netns, metrics }).map_err(sources_failure)?;
    ServiceFigures::new(sources, primary).map_err(|known| {
        Failure::Usage(format!("--primary: the figures of this run are {}", known.join(", ")))
    })
}

/// The plan for this host, ready to be switched: all of it is off.
fn switched(
    state: &StateArgs,
    place: &Place,
    plan: &Plan,
    rebase: &RebaseArgs,
    closed: Option<Connections>,
) -> Result<(Plan, ServiceSwitch), Failure> {
    let system = System::open(place)?;
    let plan = rebase.plan(plan.clone(), &system, &state.store())?;
    let switched = SwitchedPlan::open(system, &plan, state.store(), signals::stop_flag());
    Ok((plan, ServiceSwitch { plan: switched.map_err(|why| switch_failure(&why))?, closed }))
}

/// Connections that each switch closes.
fn closed(
    close_connections: bool,
    figures: &mut ServiceFigures,
) -> Result<Option<Connections>, Failure> {
    let connections = close_connections.then(|| figures.sources().connections());
    Ok(connections.transpose().map_err(sources_failure)?.flatten())
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

/// Switches a setting on that acts on new connections alone, counts the requests that it reaches, and switches it off. The
/// guard undoes it at once as in a period.
///
/// Errors: it reaches too few, so that both arms would be the same.
fn check_reach(
    switched: &mut ServiceSwitch,
    figures: &mut ServiceFigures,
    rules: &[GuardRule],
) -> Result<(), Failure> {
    match switched.plan.reaches() {
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
    turn(switched, true)?;
    let mut guard = HardGuard::new(rules);
    guard.switch(LiveArm::On, monotonic_ns());
    let reach = figures.sources().reach(&Wanted::NewSocketsOnly { after_ns }, &mut |sample| {
        guard.observe(sample).map_or(Ok(()), |trip| Err(LiveError::Harm(trip)))
    });
    turn(switched, false)?;
    let reach = reach.map_err(sources_failure)?;
    match reach.share() {
        Some(share) if share >= REACH_MIN => Ok(()),
        share => {
            let offer = if switched.closed.is_some() {
                "its clients do not come back in time"
            } else {
                "let the clients connect anew for each request, let each switch close the service's connections \
                 (--close-connections)"
            };
            Err(Failure::Undecided(format!(
                "no answer: the plan reaches new connections alone, and {} of the requests came on such; at least {:.0} % \
                 are needed: {offer}, or prove the plan with a load",
                share.map_or("none".to_owned(), |share| format!("{:.0} %", share * 100.0)),
                REACH_MIN * 100.0
            )))
        }
    }
}

fn turn(switched: &mut ServiceSwitch, on: bool) -> Result<(), Failure> {
    switched.turn(on).map_err(Failure::failed)
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
