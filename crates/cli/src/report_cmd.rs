//! `wirepath report`.

use std::path::Path;

use report::store::{SqliteStore, Store, StoreError};

use crate::args::{Cli, ReportArgs};
use crate::end::Failure;
use crate::path_page::Known;
use crate::{console, history, prove};

pub(crate) fn run(cli: &Cli, args: &ReportArgs) -> Result<(), Failure> {
    if let (Some(name), Some(file)) = (&args.path, &args.html) {
        return path(cli, name, file);
    }
    let outcome = history::outcome_of(history::open_reading(cli)?.load(&args.id)?);
    if let Some(file) = &args.html {
        write(file, report::html::page(&outcome))?;
    }
    if let Some(file) = &args.csv {
        write(file, report::csv::to_csv(&outcome))?;
    }
    if cli.json {
        return console::text(&report::json::to_json(&outcome));
    }
    if args.html.is_none() && args.csv.is_none() {
        return console::text(&report::text::ladder(&outcome, console::style()));
    }
    Ok(())
}

/// What the history says of one path, switch by switch.
fn path(cli: &Cli, name: &str, file: &Path) -> Result<(), Failure> {
    let path = prove::find_path(name)?;
    let store = match SqliteStore::open_reading(history::database(cli)?) {
        Err(StoreError::Empty) => None,
        store => Some(store?),
    };
    let known = Known::of(store.as_ref(), path.name(), None)?;
    write(file, known.page(path.as_ref(), |page| page.file()))
}

/// Writes a result to a file and says so.
pub(crate) fn write(file: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    std::fs::write(file, contents)
        .map_err(|e| Failure::failed(format!("cannot write {}: {e}", file.display())))?;
    console::say(&format!("wrote {}", file.display()));
    Ok(())
}
