//! `prove command --resume`.
//!
//! The stored experiment holds commands. They are run only if no other user could have written them: not from
//! another user's results, nor from a document that was imported. Commands that are given again are this user's.

use host::private_file;
use house::console;
use house::context::Context;
use model::{Programs, RESOLVE};
use remote::Failure;
use report::store::{Store, Stored};
use runner::{Resumed, resolve_text, stored_resolve};

use super::CommandArgs;
use crate::shared_args::parse_resolve;

use crate::results;

/// Loads an experiment that did not reach its end.
///
/// Errors: it did, something that its figures depend on has changed since, or its commands may be another user's.
pub(super) fn load(
    context: &Context,
    args: &CommandArgs,
    id: &str,
) -> Result<(Programs, Resumed), Failure> {
    let store = results::database(context).open_reading()?;
    let Stored { header, ended, outcome, trials } =
        store.load(id).map_err(runner::store_failure)?;
    let id = header.id.clone();
    let text = match header.load.get("experiment") {
        Some(text) if header.path == command::NAME => text,
        _ => return Err(refused(&id, "it is not of `prove command`")),
    };
    if ended.is_complete() {
        return Err(refused(&id, "it has reached its end"));
    }
    if header.version != env!("CARGO_PKG_VERSION") {
        return Err(refused(&id, &format!("it was begun by version {}", header.version)));
    }
    if header.machine.id != lab::describe_machine(String::new()).id {
        return Err(refused(&id, "it was begun on another machine, or this one has changed since"));
    }
    // A run that was killed before its first trial has no outcome either.
    if trials.is_empty() && outcome.is_some() {
        return Err(refused(
            &id,
            "it has no trials: it was imported, or ended before the first one",
        ));
    }
    let stored = Programs::parse(text).map_err(Failure::usage)?;
    let given = args.programs()?;
    // Another one would be a choice made after the figures were seen.
    let resolve = stored_resolve(&header.load).unwrap_or(RESOLVE);
    let asked = given.resolve.as_deref().map(parse_resolve).transpose();
    let asked = asked.map_err(|why| Failure::Usage(format!("--resolve: {why}")))?;
    if asked.is_some_and(|asked| asked != resolve) {
        let kept = resolve_text(resolve);
        return Err(refused(
            &id,
            &format!("it resolves {kept}, and another --resolve is a new question"),
        ));
    }
    let commands = if given.is_unspecified() {
        private_file::check_written_by_this_user(&results::database(context).file()?).map_err(|why| {
            Failure::Usage(format!(
                "{id} is not resumed with its stored commands: {why}, or give the same commands again \
                 beside --resume"
            ))
        })?;
        console::say(&format!("{id} goes on with its stored commands:\n{}", shown(&stored)));
        stored.clone()
    } else {
        given.clone()
    };
    let experiment = Programs {
        time: given.time.or(stored.time.clone()),
        min_blocks: given.min_blocks.or(stored.min_blocks),
        max_blocks: given.max_blocks.or(stored.max_blocks),
        resolve: Some(resolve_text(resolve)),
        ..commands
    };
    if experiment.digest() != stored.digest() {
        return Err(refused(&id, "its experiment differs from the one given now"));
    }
    let (seed, schedule) = (header.seed, header.schedule);
    let resumed = Resumed { seed, schedule, trials, header: header.into() };
    Ok((experiment, resumed))
}

fn refused(id: &str, why: &str) -> Failure {
    Failure::Usage(format!("{id} cannot be resumed: {why}; start a new experiment"))
}

/// The experiment as its file, indented.
fn shown(experiment: &Programs) -> String {
    let text = experiment.to_text();
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}
