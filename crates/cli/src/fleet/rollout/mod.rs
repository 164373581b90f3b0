//! `wirepath fleet rollout`: a plan of settings on more and more hosts, with the proof of each stage as the gate.

mod document;
mod members;
mod proof;
mod request;

use fleet::rollout::{Answer, Conductor, Event, Ledger, SqliteLedger, State};
use host::exclusive::ExclusiveLock;

pub(crate) use self::document::Document;
use self::members::Members;
pub(crate) use self::request::RolloutArgs;
use super::hosts::Host;
use super::{book_file, lock_book};
use crate::console;
use crate::context::Context;
use crate::exit::Failure;

pub(crate) fn run(context: &Context, args: &RolloutArgs) -> Result<(), Failure> {
    let file = book_file(context)?;
    let begun = match args.resume.as_ref().or(args.abort.as_ref()) {
        None => Some(args.header()?),
        Some(_) => None,
    };
    let Some(_book_lock) = lock_book(context)? else {
        return Err(Failure::failed(
            "another `wirepath fleet` runs on the same book; wait for it, or choose another folder with --data-dir",
        ));
    };
    let mut ledger = match (begun, args.resume.as_ref().or(args.abort.as_ref())) {
        (Some((header, _)), _) => SqliteLedger::begin(file, header)?,
        (None, id) => existing(&file, id.map_or("", String::as_str))?,
    };
    let header = ledger.header().clone();
    let (hosts, plan, mut request) = request::read(&header)?;
    // Also given to one that has paused.
    request.accepts_inconclusive |= args.accept_inconclusive;
    let draw = request::draw(&header)?;
    let _lock = match hosts.iter().any(Host::is_local) {
        true => Some(ExclusiveLock::acquire_alone()?),
        false => None,
    };
    console::say(&format!("roll-out {}", header.id));
    let data = context.data_dir.clone();
    let mut members = Members {
        hosts: &hosts,
        plan: &plan,
        request: &request,
        id: &header.id,
        data,
        waiting: Vec::new(),
    };
    let ended = conduct(args, &draw, &header.hosts, &mut members, &mut ledger)?;
    let document = Document::new(&header, &draw, &request.metric, &ledger.rows()?);
    if document.was_begun() {
        show(context, args, &document)?;
    }
    verdict(args, ended, &document)
}

fn existing(file: &std::path::Path, id: &str) -> Result<SqliteLedger, Failure> {
    let none = || {
        Failure::Usage(format!("there is no roll-out {id:?}; `wirepath fleet status` lists them"))
    };
    match file.exists() {
        true => SqliteLedger::open(file, id)?.ok_or_else(none),
        false => Err(none()),
    }
}

/// Begins, goes on or rolls back, to the end of the roll-out or of this process.
fn conduct(
    args: &RolloutArgs,
    draw: &fleet::rollout::Draw,
    names: &[String],
    members: &mut Members<'_>,
    ledger: &mut SqliteLedger,
) -> Result<State, Failure> {
    let mut conductor = Conductor::new(draw, names, members, ledger)?;
    let before = conductor.state();
    if args.abort.is_some() {
        if !conductor.take(Event::Abort, "the user aborts it")? {
            return Err(Failure::Usage(format!("it is {before}: nothing can be rolled back")));
        }
    } else if args.resume.is_some() {
        // An end stays as it is, and is shown again.
        conductor.take(Event::Resume, "the user resumes it")?;
    }
    let ended = conductor.run()?;
    if !args.keep || !conductor.take(Event::Keep, "the user keeps it")? {
        return Ok(ended);
    }
    let answers = members.keep(&draw.newest_first(draw.stages()))?;
    for (at, answer) in answers {
        if let Answer::Failed(why) | Answer::Silent(why) | Answer::Drifted(why) = answer {
            console::say(&format!(
                "note: {} keeps its earlier values, too ({why}); `wirepath tune confirm --forget` there ends that",
                names[at]
            ));
        }
    }
    Ok(State::Kept)
}

fn show(context: &Context, args: &RolloutArgs, document: &Document) -> Result<(), Failure> {
    let page = document.page();
    if let Some(file) = &args.html {
        console::write_file(file, report::html::rollout_page(&page))?;
    }
    match context.json {
        true => console::json(document),
        false => console::text(&report::text::rollout(&page, console::style())),
    }
}

fn verdict(args: &RolloutArgs, ended: State, document: &Document) -> Result<(), Failure> {
    let id = document.id();
    match ended {
        State::RolledBack if args.abort.is_some() => Ok(()),
        State::RolledBack if !document.was_begun() => {
            Err(Failure::failed(format!("not begun: {}", document.why())))
        }
        State::RolledBack => Err(Failure::Threshold(format!("rolled back: {}", document.why()))),
        State::Stuck { .. } => Err(Failure::failed(format!(
            "{}; try again with `wirepath fleet rollout --resume {id}`",
            document.why()
        ))),
        State::Paused { .. } => Err(Failure::failed(format!(
            "paused: {}; go on with `wirepath fleet rollout --resume {id}`, or end it with --abort {id}",
            document.why()
        ))),
        _ => Ok(()),
    }
}
