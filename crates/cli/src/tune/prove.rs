//! `wirepath tune prove`: the worth of a plan and of each of its settings, under a load.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::command::{CommandSession, Journals};
use clap::{Args, ValueEnum};
use host::tune::{Place, Plan, Ready, Store, System};
use lab::{
    LoadRequest, LoadRoute, NamespaceEnds, TrialSettings, TunedSession, WHOLE_PLAN, Wire,
    changed_knobs, each_of_plan, ladder_of_plan, whole_plan, without_plan,
};
use model::{Direction, Gain, Load, LoadKind, Programs, Session};
use remote::Failure;

use super::apply;
use super::guard::Guard;
use super::state::StateArgs;
use crate::command::{self, ProgramArgs};
use crate::context::Context;
use crate::experiment::{Proof, Proven, conduct, load_of, lock};
use crate::lookup::{self, find_load, find_path};
use crate::series::{self, SeriesArgs};
use crate::shared_args::RunArgs;
use crate::{console, signals};

#[derive(Debug, Args)]
pub(super) struct TuneProveArgs {
    /// The plan; `-` for standard input
    #[arg(value_name = "PLAN|-")]
    plan: PathBuf,
    /// Path whose load is used
    #[arg(long, default_value = "probe", value_parser = lookup::PATH)]
    path: String,
    /// Network namespace at the other end of the wire of the plan's interface: the load is sent
    /// from there into the plan's namespace
    #[arg(long, value_name = "NAME|PID|FILE", conflicts_with = "host")]
    from: Option<String>,
    /// Route the load through the plan's namespace to a temporary sink
    #[arg(long, conflicts_with = "host")]
    forward: bool,
    /// Arms: settings added one by one, or each alone; the last is the whole plan
    #[arg(long, value_enum, default_value = "ladder")]
    arms: Arms,
    #[command(flatten)]
    rebase: apply::RebaseArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    series: SeriesArgs,
    #[command(
        flatten,
        next_help_heading = "Your own program in the plan's namespace, in place of --load"
    )]
    program: ProgramArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Arms {
    /// Each adds a setting to those before it; the last is the plan
    Ladder,
    /// The plan, and each setting by itself
    Alone,
    /// The plan only
    Plan,
    /// No setting: the baseline and its control, for hosts that a roll-out leaves untouched
    #[value(hide = true)]
    None,
}

pub(super) fn run(
    context: &Context,
    state: &StateArgs,
    args: &TuneProveArgs,
) -> Result<(), Failure> {
    let gains = |proven: &Proven| match args.arms {
        Arms::Ladder => proven.outcome.gains(WHOLE_PLAN),
        Arms::Alone | Arms::Plan | Arms::None => Vec::new(),
    };
    args.run.limits.check()?;
    signals::stop_on_hangup()?;
    if args.series.runs > 1 {
        if args.plan == Path::new("-") {
            return Err(Failure::Usage("--runs reads the plan again: give it as a file".into()));
        }
        let proven = series::repeat(&args.series, &args.run.limits, false)?;
        return series::show(context, &proven, |run| run.document(Some(gains(run))));
    }
    let plan = apply::read(&args.plan)?;
    let _lock = lock()?;
    let store = state.store();
    if store.read()?.is_some() {
        return Err(Failure::failed(
            "settings are already applied; run `wirepath tune rollback` first, so that trials can \
             be measured without them",
        ));
    }
    let place = Place { netns: plan.netns.clone(), root: state.root.clone() };
    let system = System::open(&place)?;
    let plan = args.rebase.plan(plan, &system, &store)?;
    let ready = plan.check(&system, signals::stop_flag())?;
    let knobs = changed_knobs(&ready);
    if knobs.is_empty() {
        return Err(Failure::failed("nothing to prove: every setting has its planned value"));
    }
    let arms = match args.arms {
        Arms::Ladder => ladder_of_plan(&knobs),
        Arms::Alone => each_of_plan(&knobs),
        Arms::Plan => whole_plan(&knobs),
        Arms::None => without_plan(),
    };
    let Loaded { inner, wires, mut proof, trial } = match args.program.is_given() {
        true => own_program(args, &plan)?,
        false => load_of_path(args, &plan, &ready)?,
    };
    proof.arms = arms;
    let _guard = Guard::start(state)?;
    let mut parameters = BTreeMap::from([
        ("plan".to_owned(), args.plan.display().to_string()),
        ("plan_digest".to_owned(), plan.digest()),
        ("profile".to_owned(), plan.profile.clone()),
    ]);
    let stop = signals::stop_flag();
    let mut session =
        TunedSession::new(inner, wires, plan, TrialSettings::new(system, store, trial, stop));
    if args.arms != Arms::None {
        session.try_once()?;
    }
    let arms_word = args.arms.to_possible_value().map(|value| value.get_name().to_owned());
    parameters.extend(arms_word.map(|word| ("arms".to_owned(), word)));
    parameters.extend(args.from.clone().map(|from| ("from".to_owned(), from)));
    if args.forward {
        parameters.insert("forward".to_owned(), "yes".to_owned());
    }
    proof.load.extend(parameters);
    let proven = conduct(context, &args.run.limits, proof, &mut session, None)?;
    let gains = gains(&proven);
    if context.json {
        console::json(&proven.document(Some(gains)))?;
    } else {
        console::text(&report::text::ladder(&proven.outcome, console::style()))?;
        console::text(&table(&gains))?;
        proven.say_where();
    }
    match session.broken() {
        Some(why) => Err(Failure::failed(why)),
        None => proven.verdict(),
    }
}

/// Session whose trials run under parts of the plan.
struct Loaded {
    inner: Box<dyn Session>,
    /// Joined to the plan's namespace.
    wires: Vec<Wire>,
    /// Without arms.
    proof: Proof<'static>,
    /// Expected length of one trial.
    trial: Duration,
}

/// Trials of a path under one of its loads.
fn load_of_path(args: &TuneProveArgs, plan: &Plan, ready: &[Ready]) -> Result<Loaded, Failure> {
    let path = find_path(&args.path)?;
    // A load that a namespace forwards goes one way.
    let load_name = args.run.load.as_deref().or(args.forward.then_some("flood"));
    let kind = find_load(path.as_ref(), load_name)?;
    let load = load_between(kind, args, plan)?;
    let far = args.run.far.end();
    let request = LoadRequest {
        path: &args.path,
        from: args.from.as_deref(),
        forward: args.forward,
        far: far.as_ref(),
    };
    let (inner, wires) = match request.route(plan, ready)? {
        LoadRoute::Own => (path.open(&load)?, Vec::new()),
        LoadRoute::ThroughNamespace(netns) => {
            let NamespaceEnds { pair, router, nic, wires } = request.ends(plan, &netns)?;
            (probe::between(pair, router, nic, &load)?, wires)
        }
    };
    let proof = Proof::new(path.name(), kind, &load, Vec::new(), &args.run.limits);
    Ok(Loaded { inner, wires, proof, trial: load.trial })
}

/// The load. Between two hosts it loads the tuned end: this one receives, by the plan's interface.
fn load_between(kind: &LoadKind, args: &TuneProveArgs, plan: &Plan) -> Result<Load, Failure> {
    let mut load = load_of(kind, &args.run)?;
    if let Some(two) = &mut load.far {
        if args.run.far.direction.is_none() && kind.name == "flood" {
            two.direction = Direction::Receive;
        }
        if plan.netns.is_none() && two.ifname.is_none() {
            two.ifname.clone_from(&plan.interface);
        }
    }
    Ok(load)
}

/// Trials of the user's program: its server in the plan's namespace, its client in that of `--from`.
fn own_program(args: &TuneProveArgs, plan: &Plan) -> Result<Loaded, Failure> {
    let netns = |name: &Option<String>| name.as_ref().map(|name| format!("netns:{name}"));
    let mut experiment =
        Programs { near: netns(&args.from), far: netns(&plan.netns), ..Programs::default() };
    if experiment.near.is_none() || experiment.far.is_none() || experiment.near == experiment.far {
        return Err(Failure::Usage(
            "a program needs two ends: give the namespace of the client (--from NETNS) for a plan that \
             was made with --netns"
                .into(),
        ));
    }
    args.program.add_to(&mut experiment);
    let spec = ::command::resolve_programs(&experiment).map_err(Failure::usage)?;
    let load = command::load_of(&experiment, &spec, &args.run.limits);
    let proof = Proof {
        path: ::command::NAME,
        judged: spec.judged.clone(),
        load,
        arms: Vec::new(),
        search: None,
        trial: None,
        gate: false,
    };
    let trial = spec.limit();
    // Its own arms have no switches, so it has no journal.
    let none = || Store::new("/nonexistent");
    let journals = Journals { far: none(), near: none() };
    let inner = CommandSession::open(spec, journals, 0, signals::stop_flag())?;
    Ok(Loaded { inner: Box::new(inner), wires: Vec::new(), proof, trial })
}

fn table(gains: &[Gain]) -> String {
    if gains.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nEach setting on top of those before it\n");
    let width = gains.iter().map(|gain| gain.arm.len()).max().unwrap_or(0);
    let mut metric = "";
    for gain in gains {
        if gain.metric != metric {
            metric = &gain.metric;
            let _ = writeln!(text, "  {metric}");
        }
        let interval = match (gain.low, gain.high) {
            (Some(low), Some(high)) => format!("[{low:.3}, {high:.3}]"),
            _ => "–".to_owned(),
        };
        let verdict = serde_json::to_value(gain.verdict).unwrap_or_default();
        let verdict = verdict.as_str().unwrap_or_default().replace(['-', '_'], " ");
        let _ = writeln!(
            text,
            "    {:<width$}  {:>7.3}  {interval:<16}  {verdict}",
            gain.arm, gain.ratio
        );
    }
    text
}
