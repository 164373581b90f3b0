//! `wirepath history prune`.

use std::time::Duration;

use report::store::{Prune, StoreError};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::args::PruneArgs;
use crate::args::Cli;
use crate::console;
use crate::end::Failure;

/// What is younger than this and not finished may still be running; no `prove` runs longer.
const MAY_RUN: Duration = Duration::from_secs(7 * 86_400 + 3_600);

pub(crate) fn run(cli: &Cli, args: &PruneArgs) -> Result<(), Failure> {
    let mut store = super::open(cli)?;
    let what = Prune {
        before: args.older_than.map(ago).transpose()?,
        keep: args.keep.map_or(0, |keep| u32::try_from(keep).unwrap_or(u32::MAX)),
        path: args.path.clone(),
        running_since: ago(MAY_RUN)?,
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
    if cli.json {
        let json = serde_json::json!({
            "removed": args.yes, "experiments": ids,
            "bytes_before": before, "bytes_after": after,
        });
        console::text(&format!("{json:#}"))?;
    } else if ids.is_empty() {
        console::text("nothing to remove")?;
    } else {
        let count = if ids.len() == 1 {
            "1 experiment".into()
        } else {
            format!("{} experiments", ids.len())
        };
        let first = match args.yes {
            true => format!("removed {count}:"),
            false => format!("would remove {count} (do it with --yes):"),
        };
        console::text(&format!("{first}\n  {}", ids.join("\n  ")))?;
    }
    match shrunk {
        Err(e @ (StoreError::Full { .. } | StoreError::Locked { .. })) => {
            console::say(&format!("the file keeps its size, and new results use the room: {e}"));
            Ok(())
        }
        other => Ok(other?),
    }
}

/// That long ago, as experiments carry their start.
fn ago(age: Duration) -> Result<String, Failure> {
    (OffsetDateTime::now_utc() - age)
        .format(&Rfc3339)
        .map_err(|e| Failure::failed(format!("the clock reads nonsense: {e}")))
}
