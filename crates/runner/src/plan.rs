//! A plan of host settings.

use std::any::Any;
use std::time::Duration;

use command::CommandSession;
use host::tune::{Place, Plan, ReadyStep, System};
use lab::{LoadRoute, LoadTopology, NamespaceEnds, TrialSettings, TunedSession, Wire};
use model::{LoadRequest, PlanArms, PlanLoad, PlanRequest, Programs, Request, Session, SwitchId};
use remote::Failure;

use crate::arms::{changed_knobs, plan_arms};
use crate::header::load_parameters;
use crate::load::{find_load, requested_load};
use crate::opened::Opened;
use crate::programs;
use crate::proof::Proof;
use crate::runner::Runner;

/// Session whose trials run under parts of the plan.
struct Loaded {
    inner: Box<dyn Session>,
    /// Joined to the plan's namespace.
    wires: Vec<Wire>,
    /// Without arms.
    proof: Proof,
    /// Expected length of one trial.
    trial: Duration,
    /// Switches beside the settings of the plan.
    switches: Vec<SwitchId>,
    /// Of the places of these.
    guards: Vec<Box<dyn Any>>,
}

/// Opens the load, and makes an arm of each part of the plan.
///
/// Errors: settings are applied already, none would change, or the plan fails at its first try.
pub(crate) fn open<'a>(
    runner: &Runner<'_>,
    request: &Request,
    wanted: &PlanRequest,
) -> Result<Opened<'a>, Failure> {
    let plan = Plan::parse(&wanted.plan).map_err(Failure::usage)?;
    let store = runner.journal.store();
    if store.read()?.is_some() {
        return Err(Failure::failed(
            "settings are already applied; run `wirepath tune rollback` first, so that trials can \
             be measured without them",
        ));
    }
    let place = Place { netns: plan.netns.clone(), root: runner.journal.root.clone() };
    let system = System::open(&place)?;
    let plan = if wanted.rebase {
        plan.rebased(&system, store.read()?.as_ref(), runner.stop)?
    } else {
        plan
    };
    let ready = plan.check(&system, runner.stop)?;
    let knobs = changed_knobs(&ready);
    let has_switches =
        matches!(&wanted.load, PlanLoad::Programs(programs) if !programs.switches.is_empty());
    if knobs.is_empty() && !has_switches {
        return Err(Failure::failed("nothing to prove: every setting has its planned value"));
    }
    let Loaded { inner, wires, mut proof, trial, switches, mut guards } = match &wanted.load {
        PlanLoad::Programs(programs) => load_by_programs(runner, request, wanted, programs, &plan)?,
        PlanLoad::Path { path, load } => {
            load_by_path(runner, request, wanted, path, load, &plan, &ready)?
        }
    };
    let knobs = knobs.into_iter().map(SwitchId::named);
    proof.arms = plan_arms(&knobs.chain(switches).collect::<Vec<_>>(), wanted.arms);
    proof.load.extend([
        ("plan".to_owned(), wanted.file.clone()),
        ("plan_digest".to_owned(), plan.digest()),
        ("profile".to_owned(), plan.profile.clone()),
        ("arms".to_owned(), wanted.arms.name().to_owned()),
    ]);
    proof.load.extend(wanted.from.clone().map(|from| ("from".to_owned(), from)));
    if wanted.forward {
        proof.load.insert("forward".to_owned(), "yes".to_owned());
    }
    guards.push((runner.start_guard)(&runner.journal)?);
    let settings = TrialSettings::new(system, store, trial, runner.stop);
    let session = TunedSession::new(inner, wires, plan, settings);
    if wanted.arms != PlanArms::None {
        session.try_once()?;
    }
    Ok(Opened { proof, session: Box::new(session), space: None, records_search: false, guards })
}

/// Trials of a path under one of its loads.
fn load_by_path(
    runner: &Runner<'_>,
    request: &Request,
    wanted: &PlanRequest,
    path: &str,
    load: &LoadRequest,
    plan: &Plan,
    ready: &[ReadyStep],
) -> Result<Loaded, Failure> {
    let found = (runner.find_path)(path, load)?;
    let kind = find_load(found.as_ref(), load.kind.as_deref())?;
    let mut load = requested_load(found.as_ref(), kind, load)?;
    if let Some(two) = &mut load.far
        && plan.netns.is_none()
        && two.ifname.is_none()
    {
        two.ifname.clone_from(&plan.interface);
    }
    let far = load.far.as_ref().map(|two| two.end.parse()).transpose().map_err(Failure::usage)?;
    let topology = LoadTopology {
        path,
        from: wanted.from.as_deref(),
        forward: wanted.forward,
        far: far.as_ref(),
    };
    let (inner, wires) = match topology.route(plan, ready)? {
        LoadRoute::Own => (found.open(&load)?, Vec::new()),
        LoadRoute::ThroughNamespace(netns) => {
            let NamespaceEnds { pair, router, nic, wires } = topology.ends(plan, &netns)?;
            (probe::between(pair, router, nic, &load)?, wires)
        }
    };
    let parameters = load_parameters(&load, &request.limits);
    let proof = Proof::for_path(request, found.as_ref(), kind, &load, parameters);
    let proof = Proof { gate: false, ..proof };
    let (switches, guards) = (Vec::new(), Vec::new());
    Ok(Loaded { inner, wires, proof, trial: load.trial, switches, guards })
}

/// Trials of programs: the server in the plan's namespace and the client in the other one, or the plan's namespace
/// between both.
fn load_by_programs(
    runner: &Runner<'_>,
    request: &Request,
    wanted: &PlanRequest,
    programs: &Programs,
    plan: &Plan,
) -> Result<Loaded, Failure> {
    let programs = if programs.near.is_some() {
        through_place(programs, plan)
    } else {
        let (Some(near), Some(far)) = (&wanted.from, &plan.netns) else {
            return Err(lacks_an_end());
        };
        if near == far {
            return Err(lacks_an_end());
        }
        let [near, far] = [near, far].map(|name| Some(format!("netns:{name}")));
        Programs { near, far, ..programs.clone() }
    };
    let spec = command::resolve_programs(&programs).map_err(Failure::usage)?;
    let parameters = programs::parameters(request, &programs, &spec);
    let proof = Proof::new(request, Programs::PATH, spec.judged.clone(), parameters);
    let proof = Proof { gate: false, ..proof };
    let (trial, switches) = (spec.limit(), spec.switches.iter().map(command::Switch::id).collect());
    // The plan has the journal of its own.
    let far = runner.journal.place("far");
    let guards = programs::guards(runner, &far, &spec)?;
    let journals = programs::journals(runner, &far, &spec);
    let inner = Box::new(CommandSession::open(spec, journals, 0, runner.stop)?);
    Ok(Loaded { inner, wires: Vec::new(), proof, trial, switches, guards })
}

/// The programs with the plan's namespace as a place between their ends.
fn through_place(programs: &Programs, plan: &Plan) -> Programs {
    let mut programs = programs.clone();
    let place = plan.netns.as_ref().map_or("this".to_owned(), |name| format!("netns:{name}"));
    if !programs.at.values().any(|known| *known == place) {
        programs.at.insert("plan".to_owned(), place);
    }
    programs
}

fn lacks_an_end() -> Failure {
    Failure::Usage(
        "a program needs two ends: give the namespace of the client (--from NETNS) for a plan that \
         was made with --netns"
            .into(),
    )
}
