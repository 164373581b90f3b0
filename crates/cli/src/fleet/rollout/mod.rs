//! `wirepath fleet rollout`: a plan of settings on more and more hosts, with the proof of each stage as the gate.

#[cfg(feature = "fleet")]
mod agents;
mod document;
mod live;
mod members;
mod near;
mod proof;
mod request;

use fleet::rollout::{
    Conductor, Draw, Ledger, RolloutEvent, RolloutHeader, RolloutState, SqliteLedger, StepAnswer,
};
use host::exclusive::ExclusiveLock;
use remote::Failure;

pub(crate) use self::document::RolloutDocument;
use self::members::{Members, Reach};
use self::near::Near;
pub(crate) use self::request::RolloutArgs;
use self::request::RolloutRequest;
use super::hosts::Host;
use super::{book_file, lock_book};
use house::context::Context;
use house::{console, signals};

pub(crate) fn run(context: &Context, args: &RolloutArgs) -> Result<(), Failure> {
    #[cfg(feature = "fleet")]
    if let Some(folder) = args.agents.folder() {
        return agents::run(context, args, folder);
    }
    let file = book_file(context)?;
    let begun = match args.existing() {
        None => Some(new_header(args)?),
        Some(_) => None,
    };
    let Some(_book_lock) = lock_book(context)? else {
        return Err(Failure::failed(
            "another `wirepath fleet` runs on the same book; wait for it, or choose another folder with --data-dir",
        ));
    };
    let mut ledger = match begun {
        Some(header) => SqliteLedger::begin(file, header)?,
        None => existing(&file, args.existing().unwrap_or_default())?,
    };
    let header = ledger.header().clone();
    let hosts: Result<Vec<Host>, String> = header.hosts.iter().map(|text| text.parse()).collect();
    let hosts = hosts.map_err(Failure::failed)?;
    let has_local = hosts.iter().any(Host::is_local);
    let _lock = has_local.then(ExclusiveLock::acquire_alone).transpose()?;
    let data = context.data_dir.clone();
    go_on(context, args, &header, &mut ledger, |request| Ok(Near::new(hosts, request, data)))
}

/// The roll-out that the user asks for. Errors: a host is none.
fn new_header(args: &RolloutArgs) -> Result<RolloutHeader, Failure> {
    let hosts = args.hosts.hosts()?;
    for host in hosts {
        host.netns()?;
    }
    args.header(hosts.iter().map(Host::to_string).collect(), |_| Ok(()))
}

fn unknown(id: &str) -> Failure {
    Failure::Usage(format!("there is no roll-out {id:?}; `wirepath fleet status` lists them"))
}

/// Opens a stored roll-out to go on with it. Its plan, its hosts and its options of ssh, which may name commands, are those of
/// the file, so that no other user may have written it.
fn existing(file: &std::path::Path, id: &str) -> Result<SqliteLedger, Failure> {
    if !file.exists() {
        return Err(unknown(id));
    }
    host::private_file::check_written_by_this_user(file)
        .map_err(|why| Failure::Usage(format!("{id} is not gone on with: {why}")))?;
    SqliteLedger::open(file, id)?.ok_or_else(|| unknown(id))
}

/// Begins or goes on with a roll-out, to its end or that of this process, and shows it.
///
/// - `reach`: reaches its hosts.
fn go_on<L: Ledger, R: Reach>(
    context: &Context,
    args: &RolloutArgs,
    header: &RolloutHeader,
    ledger: &mut L,
    reach: impl FnOnce(&RolloutRequest) -> Result<R, Failure>,
) -> Result<(), Failure> {
    let (plan, mut request) = request::read(header)?;
    // Also given to one that has paused.
    request.accepts_inconclusive |= args.accept_inconclusive;
    let draw = request::draw(header)?;
    console::say(&format!("roll-out {}", header.id));
    let mut members = Members {
        reach: reach(&request)?,
        names: &header.hosts,
        plan: &plan,
        request: &request,
        id: &header.id,
    };
    let ended = conduct(args, &draw, &header.hosts, &mut members, ledger)?;
    let document = RolloutDocument::new(header, &draw, &request, &ledger.rows()?);
    if document.was_begun() {
        show(context, args, &document)?;
    }
    verdict(args, ended, &document)
}

/// Begins, goes on or rolls back, to the end of the roll-out or of this process.
fn conduct<L: Ledger, R: Reach>(
    args: &RolloutArgs,
    draw: &Draw,
    names: &[String],
    members: &mut Members<'_, R>,
    ledger: &mut L,
) -> Result<RolloutState, Failure> {
    let mut conductor = Conductor::new(draw, names, members, ledger)?;
    let before = conductor.state();
    if args.abort.is_some() {
        if !conductor.take(RolloutEvent::Abort, "the user aborts it")? {
            return Err(Failure::Usage(format!("it is {before}: nothing can be rolled back")));
        }
    } else if args.resume.is_some() {
        // An end stays as it is, and is shown again.
        conductor.take(RolloutEvent::Resume, "the user resumes it")?;
    }
    let ended = conductor.run()?;
    if !args.keep || !conductor.take(RolloutEvent::Keep, "the user keeps it")? {
        return Ok(ended);
    }
    let answers = members.keep(&draw.newest_first(draw.stages()))?;
    for (at, answer) in answers {
        if let StepAnswer::Failed(why) | StepAnswer::Silent(why) | StepAnswer::Drifted(why) = answer
        {
            console::say(&format!(
                "note: {} keeps its earlier values, too ({why}); `wirepath tune confirm --forget` there ends that",
                names[at]
            ));
        }
    }
    Ok(RolloutState::Kept)
}

fn show(context: &Context, args: &RolloutArgs, document: &RolloutDocument) -> Result<(), Failure> {
    let page = document.page();
    if let Some(file) = &args.html {
        console::write_file(file, report::html::rollout_page(&page))?;
    }
    if context.json {
        return console::json(document);
    }
    console::text(&report::text::rollout(&page, console::style()))
}

fn verdict(
    args: &RolloutArgs,
    ended: RolloutState,
    document: &RolloutDocument,
) -> Result<(), Failure> {
    let id = document.id();
    match ended {
        RolloutState::RolledBack if args.abort.is_some() => Ok(()),
        RolloutState::RolledBack if !document.was_begun() => {
            Err(Failure::failed(format!("not begun: {}", document.why())))
        }
        RolloutState::RolledBack => {
            Err(Failure::Threshold(format!("rolled back: {}", document.why())))
        }
        RolloutState::Stuck { .. } => Err(Failure::failed(format!(
            "{}; try again with `wirepath fleet rollout --resume {id}`",
            document.why()
        ))),
        RolloutState::Paused { .. } => {
            let text = format!(
                "paused: {}; go on with `wirepath fleet rollout --resume {id}`, or end it with --abort {id}",
                document.why()
            );
            if signals::stop_requested() {
                return Err(Failure::Interrupted(text));
            }
            Err(Failure::Undecided(text))
        }
        _ => Ok(()),
    }
}
