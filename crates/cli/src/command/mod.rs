//! `wirepath prove command`: the user's own programs as arms.

mod args;
mod check;
mod resume;

use std::collections::BTreeMap;

use command::{CommandSession, End, Journals, Spec};
use host::tune::Store;
use model::{Arm, Programs};
use remote::Failure;

pub(crate) use args::{CommandArgs, ProgramArgs};

use crate::best::{self, BEST, Record, Space};
use crate::context::Context;
use crate::experiment::{Proof, Proven, RESOLVE_KEY, conduct, lock};
use crate::shared_args::{LimitArgs, resolve_text};
use crate::tune::guard::Guard;
use crate::tune::state::StateArgs;
use crate::{console, gate, series, signals};

pub(crate) fn run(context: &Context, args: &CommandArgs) -> Result<(), Failure> {
    let (experiment, resumed) = match &args.resume {
        None => (args.experiment()?, None),
        Some(id) => {
            let (experiment, resumed) = resume::load(context, args, id)?;
            (experiment, Some(resumed))
        }
    };
    let spec = command::resolve(&experiment).map_err(Failure::usage)?;
    // Mistakes in lists of arms show here, too.
    let arms = command::arms(&spec).map_err(Failure::usage)?;
    let limits = args.limits(&experiment)?;
    if args.check {
        return check::run(context, &experiment, &spec, &arms);
    }
    if experiment.metrics.is_empty() && experiment.adapter.is_none() {
        console::say(
            "no --metric and no --adapter: arms are judged by the client's wall time and by CPU time \
             per packet",
        );
    }
    let is_gated = matches!(args.fail_on, Some(args::FailOn::Worse));
    let judge = |proven: &[Proven]| {
        if is_gated { gate::judge(proven, args.accept_undecided) } else { Ok(()) }
    };
    let is_search = spec.plan == BEST && !spec.switches.is_empty();
    if args.series.runs > 1 {
        let proven = series::repeat(&args.series, &limits, is_gated)?;
        series::show(context, &proven, |run| run.searched(is_search))?;
        return judge(&proven);
    }
    check::refuse(&command::unstartable(&spec))?;
    signals::stop_on_hangup()?;
    let _lock = lock()?;
    let _guards = guards(&spec, &args.state)?;
    let stop = signals::stop_flag();
    let ran = resumed.as_ref().map_or(0, |resumed| resumed.trials.len() as u32);
    let mut session = CommandSession::open(spec.clone(), journals(&args.state), ran, stop)?;
    let load = match &resumed {
        Some(resumed) => resumed.header.load.clone(),
        None => load_of(&experiment, &spec, &limits),
    };
    let proof = Proof {
        path: command::NAME,
        judged: spec.judged.clone(),
        load,
        arms,
        search: None,
        trial: None,
        gate: is_gated,
    };
    let proven = if is_search {
        let switches: Vec<_> = spec.switches.iter().map(command::Switch::id).collect();
        let support = &mut |arm: &Arm| command::support(&spec, arm);
        let mut space = Space { switches: &switches, support, trial: None };
        let record = resumed.map_or(Record::Begins, |run| Record::Goes(Box::new(run)));
        best::find(context, &limits, &proof, &mut space, &mut session, record)?
    } else {
        conduct(context, &limits, proof, &mut session, resumed)?
    };
    let broken = session.broken().map(str::to_owned);
    drop(session);
    show(context, &proven, is_search)?;
    if let Some(why) = broken {
        return Err(Failure::failed(why));
    }
    proven.verdict()?;
    judge(&[proven])
}

fn show(context: &Context, proven: &Proven, is_search: bool) -> Result<(), Failure> {
    if context.json {
        return console::json(&proven.searched(is_search));
    }
    console::text(&report::text::ladder(&proven.outcome, console::style()))?;
    proven.say_where();
    Ok(())
}

/// Journals of both ends; that of the near end is in a folder of its own.
fn journals(state: &StateArgs) -> Journals {
    Journals { far: state.store(), near: Store::new(near_folder(state)) }
}

fn near_folder(state: &StateArgs) -> std::path::PathBuf {
    state.folder().join("near")
}

/// Processes that roll back the settings of existing namespaces if this one is killed.
fn guards(spec: &Spec, state: &StateArgs) -> Result<Vec<Guard>, Failure> {
    if spec.near.is_none() && spec.far.is_none() {
        return Ok(Vec::new());
    }
    let mut guards = Vec::new();
    // Another host has a guard of its own.
    if spec.sets_knobs_at(End::Far) && !spec.is_far_elsewhere() {
        guards.push(Guard::start(state)?);
    }
    if spec.sets_knobs_at(End::Near) {
        guards.push(Guard::start(&state.with_folder(near_folder(state)))?);
    }
    Ok(guards)
}

/// Description that is stored with the result.
pub(crate) fn load_of(
    experiment: &Programs,
    spec: &Spec,
    limits: &LimitArgs,
) -> BTreeMap<String, String> {
    let mut load = BTreeMap::from([
        ("args".to_owned(), own_args()),
        ("digest".to_owned(), experiment.digest()),
        ("experiment".to_owned(), experiment.to_text()),
        ("judged".to_owned(), spec.judged.join(",")),
        (RESOLVE_KEY.to_owned(), resolve_text(limits.resolve.ratio())),
        ("time_ms".to_owned(), limits.time.as_millis().to_string()),
    ]);
    load.extend(spec.client().map(|client| ("client".to_owned(), client.to_owned())));
    if !spec.switches.is_empty() {
        load.insert("arms".to_owned(), spec.plan.clone());
    }
    load
}

/// Arguments of this process, quoted for a shell, without the options of its output.
fn own_args() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.filter(|word| word != "--json").collect();
    words.iter().map(|word| report::quoted(word)).collect::<Vec<_>>().join(" ")
}
