//! `wirepath compare`: is the new program better than the old one, here?
//!
//! It finds what `prove command` would have to be told (place, port, readiness, adapter), and makes the same request.

mod args;
mod builds;
mod images;
mod servers;

use std::time::Duration;

use host::text::chain;
use house::context::Context;
use house::signals;
use model::{ArmEntry, Programs};
use remote::Failure;
use runner::{JournalFolder, NOTHING_KNOWN, Planned, resolve_text};

pub(crate) use args::CompareArgs;
use args::TwoNames;

use crate::command::programs_request;
use crate::gate;
use crate::proven::{ProveDocument, print_document, print_ladder, say_report, say_where, verdict};
use crate::running::{Terminal, runner};

/// Names of the arms.
const OLD: &str = "old";
const NEW: &str = "new";
/// Shortest time limit for a program that ends, and for a client.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);
/// Figures of programs that end; the first decides.
const ENDING_FIGURES: [&str; 2] = ["client_wall_ns", "client_cpu_ns"];

/// The commands that are compared, and the builds that live as long as they run.
struct Compared {
    old: String,
    new: String,
    _builds: Option<builds::Builds>,
}

pub(crate) fn run(context: &Context, args: &CompareArgs) -> Result<(), Failure> {
    check_options(args)?;
    let compared = compared(args)?;
    let mut programs = programs(args, &compared);
    check(&programs)?;
    match programs.client.clone() {
        Some(client) => servers::complete(&mut programs, &compared.old, &compared.new, &client)?,
        None => complete_ending(&mut programs),
    }
    let mut request = programs_request(programs, args.seed, !args.no_history)?;
    request.gate = true;
    let terminal = Terminal::open(context, args.watch.watch)?;
    let runner = runner(context, JournalFolder::default(), &terminal);
    signals::stop_on_hangup()?;
    let Planned::Programs(plan) = runner.plan(&request)? else {
        return Err(Failure::failed("the request is not of programs"));
    };
    let proven = runner.run_planned(&request, Planned::Programs(plan), None)?;
    if context.json {
        print_document(&proven, &ProveDocument::new(&proven))?;
    } else {
        print_ladder(&proven, args.watch.detail)?;
        say_where(&proven);
        say_report(context, &proven);
    }
    verdict(&proven)?;
    gate::judge(&[proven], args.accept_undecided)
}

/// Builds what has to be built.
fn compared(args: &CompareArgs) -> Result<Compared, Failure> {
    if let (Some(build), Some(run)) = (&args.build, &args.run) {
        let builds = builds::build(build, [(OLD, &args.old), (NEW, &args.new)])?;
        let [old, new] = builds.commands(run);
        return Ok(Compared { old, new, _builds: Some(builds) });
    }
    let [old, new] = if args.image {
        images::commands([&args.old, &args.new], !args.client.is_empty())?
    } else {
        [args.old.clone(), args.new.clone()]
    };
    Ok(Compared { old, new, _builds: None })
}

/// The experiment as far as the command line tells it.
fn programs(args: &CompareArgs, compared: &Compared) -> Programs {
    let mut programs = Programs {
        metrics: args.metric.clone(),
        deciding: args.metric.iter().map(|metric| figure_name(metric).to_owned()).collect(),
        ready: args.ready.clone(),
        setup: args.setup.clone(),
        // One that takes longer than the whole run cannot be measured in it.
        within: Some(format!("{}ms", args.time.max(PROGRAM_TIMEOUT).as_millis())),
        time: Some(format!("{}ms", args.time.as_millis())),
        resolve: Some(resolve_text(args.resolve.ratio())),
        name: args.title.name.clone(),
        note: args.title.note.clone(),
        wire: args.wire.wire.clone(),
        ..Programs::default()
    };
    match client_line(&args.client) {
        Some(client) => {
            programs.client = Some(client);
            let Some(TwoNames(names)) = &args.congestion_control else {
                programs.against = Some(compared.old.clone());
                programs.server = Some(compared.new.clone());
                return programs;
            };
            let commands = [(OLD, &compared.old), (NEW, &compared.new)];
            programs.arm = commands.into_iter().zip(names).map(arm_with_control).collect();
        }
        None => {
            programs.place = Some("here".to_owned());
            programs.arm = [(OLD, &compared.old), (NEW, &compared.new)]
                .map(|(name, command)| ArmEntry {
                    name: name.to_owned(),
                    command: Some(command.clone()),
                    ..ArmEntry::default()
                })
                .into();
        }
    }
    programs
}

/// A server and a client with a congestion control, as either may be the sender: by their routes, because a namespace refuses
/// some by its own setting.
fn arm_with_control(((name, command), control): ((&str, &String), &String)) -> ArmEntry {
    ArmEntry {
        name: name.to_owned(),
        command: Some(command.clone()),
        switches: ["", "near:"]
            .map(|end| format!("{end}route-congestion-control={control}"))
            .into(),
        ..ArmEntry::default()
    }
}

/// Errors: an option of servers without a client.
fn check_options(args: &CompareArgs) -> Result<(), Failure> {
    if !args.client.is_empty() || args.wire.wire.is_none() && args.congestion_control.is_none() {
        return Ok(());
    }
    Err(Failure::Usage(
        "--wire and --congestion-control are of servers in a lab; add a client: -- CLIENT"
            .to_owned(),
    ))
}

/// Name of a figure that is given as `NAME=SOURCE`, or by its name alone.
fn figure_name(metric: &str) -> &str {
    metric.split_once('=').map_or(metric, |(name, _)| name).trim()
}

/// Errors: a command that cannot start, before anything is started.
fn check(programs: &Programs) -> Result<(), Failure> {
    let spec = command::resolve(programs).map_err(Failure::usage)?;
    let problems = command::unstartable(&spec);
    let Some(first) = problems.first() else { return Ok(()) };
    Err(Failure::Usage(format!("{}: {}", first.part.trim_start_matches("arm "), first.why)))
}

fn complete_ending(programs: &mut Programs) {
    if programs.metrics.is_empty() {
        programs.metrics = ENDING_FIGURES.map(str::to_owned).into();
        programs.deciding = vec![ENDING_FIGURES[0].to_owned()];
    }
}

/// The client as a line for a shell: one word is such a line already.
fn client_line(words: &[String]) -> Option<String> {
    match words {
        [] => None,
        [line] => Some(line.clone()),
        words => {
            let words: Vec<String> = words.iter().map(|word| report::quoted(word)).collect();
            Some(words.join(" "))
        }
    }
}

/// An error of a far part as a failure of this command.
fn failed(error: &model::PathError) -> Failure {
    match error {
        // It may be of the program that was ended.
        _ if signals::stop_requested() => Failure::Interrupted(NOTHING_KNOWN.to_owned()),
        model::PathError::Invalid { .. } => Failure::Usage(chain(error)),
        model::PathError::Unsupported { .. } => Failure::Unsupported(chain(error)),
        _ => Failure::Failed(chain(error)),
    }
}
