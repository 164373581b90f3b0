//! `wirepath history prune`.

use std::time::Duration;

use house::console;
use house::context::Context;
use remote::Failure;
use report::store::{Prune, StoreError};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::args::PruneArgs;

use crate::results;

/// An unfinished experiment younger than this may still be running; no `prove` runs longer.
const RUN_TIME_LIMIT: Duration = Duration::from_secs(7 * 86_400 + 3_600);

/// Document of `history prune --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct PruneDocument {
    removed: bool,
    experiments: Vec<String>,
    bytes_before: u64,
    bytes_after: u64,
}

pub(crate) fn run(context: &Context, args: &PruneArgs) -> Result<(), Failure> {
    let mut store = results::database(context).open()?;
    let what = Prune {
        before: args.older_than.map(ago).transpose()?,
        keep: args.keep_last.map_or(0, |keep| u32::try_from(keep).unwrap_or(u32::MAX)),
        path: args.path.clone(),
        running_since: ago(RUN_TIME_LIMIT)?,
    };
    let rows = store.prunable(&what)?;
    let ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let before = store.size_bytes()?;
    let mut after = before;
    let mut shrunk = Ok(());
    if args.yes && !ids.is_empty() {
        store.remove(&ids)?;
        shrunk = store.shrink();
        after = store.size_bytes()?;
    }
    if context.json {
        let removed = args.yes;
        console::json(&PruneDocument {
            removed,
            experiments: ids,
            bytes_before: before,
            bytes_after: after,
        })?;
    } else if ids.is_empty() {
        console::text("nothing to remove")?;
    } else {
        let count = console::count(ids.len(), "experiment");
        let first = if args.yes {
            format!("removed {count}:")
        } else {
            format!("would remove {count} (do it with --yes):")
        };
        console::text(&format!("{first}\n  {}", ids.join("\n  ")))?;
    }
    match shrunk {
        Err(e @ (StoreError::Full { .. } | StoreError::Locked { .. })) => {
            console::say(&format!(
                "the file keeps its size, and new results will use the free space: {e}"
            ));
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Time of `age` ago in the format of stored experiments.
fn ago(age: Duration) -> Result<String, Failure> {
    (OffsetDateTime::now_utc() - age)
        .format(&Rfc3339)
        .map_err(|e| Failure::failed(format!("cannot format the system time: {e}")))
}
