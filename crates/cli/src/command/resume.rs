//! `prove command --resume`.

use command::Experiment;
use model::Ended;
use report::store::{Store, Stored};

use super::CommandArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::experiment::Resumed;
use crate::{machine, results};

/// Loads an experiment that did not reach its end.
///
/// Errors: it did, or something that its figures depend on has changed since.
pub(super) fn load(
    context: &Context,
    args: &CommandArgs,
    id: &str,
) -> Result<(Experiment, Resumed), Failure> {
    let Stored { header, ended, trials, .. } = results::open_reading(context)?.load(id)?;
    let id = header.id.clone();
    let refused = |why: &str| {
        let text = format!("{id} cannot be resumed: {why}; start a new experiment");
        Err(Failure::Usage(text))
    };
    let text = match header.load.get("experiment") {
        Some(text) if header.path == command::NAME => text,
        _ => return refused("it is not of `prove command`"),
    };
    if !matches!(ended, Ended::Unfinished | Ended::Interrupted) {
        return refused("it has reached its end");
    }
    if header.version != env!("CARGO_PKG_VERSION") {
        return refused(&format!("it was begun by version {}", header.version));
    }
    if header.machine.id != machine::here().id {
        return refused("it was begun on another machine, or this one has changed since");
    }
    let stored = Experiment::parse(text).map_err(Failure::usage)?;
    let given = args.experiment()?;
    let experiment = Experiment {
        time: given.time.clone().or_else(|| stored.time.clone()),
        min_blocks: given.min_blocks.or(stored.min_blocks),
        max_blocks: given.max_blocks.or(stored.max_blocks),
        ..stored
    };
    if !given.is_unspecified() && given.digest() != experiment.digest() {
        return refused("its experiment differs from the one given now");
    }
    let resumed = Resumed { seed: header.seed, trials, header: header.into() };
    Ok((experiment, resumed))
}
