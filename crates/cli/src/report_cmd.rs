//! `wirepath report`.

use std::path::{Path, PathBuf};

use clap::Args;
use report::store::{SqliteStore, Store, StoreError};

use crate::context::Context;
use crate::exit::Failure;
use crate::path_page::Known;
use crate::{console, lookup, results};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Id, unique prefix of one, or `last`
    #[arg(default_value = "last")]
    pub(crate) id: String,
    /// Write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Latest result per switch of a path, instead of one experiment
    #[arg(long, value_name = "PATH", value_parser = lookup::PATH, conflicts_with_all = ["id", "csv"], requires = "html")]
    pub(crate) path: Option<String>,
    /// Write CSV, one row per arm and metric
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &ReportArgs) -> Result<(), Failure> {
    if let (Some(name), Some(file)) = (&args.path, &args.html) {
        return path(context, name, file);
    }
    let outcome = results::outcome_of(results::open_reading(context)?.load(&args.id)?);
    if let Some(file) = &args.html {
        console::write_file(file, report::html::page(&outcome))?;
    }
    if let Some(file) = &args.csv {
        console::write_file(file, report::csv::to_csv(&outcome))?;
    }
    if context.json {
        return console::text(&report::json::to_json(&outcome));
    }
    if args.html.is_none() && args.csv.is_none() {
        return console::text(&report::text::ladder(&outcome, console::style()));
    }
    Ok(())
}

/// Writes the page of one path: the latest result per switch.
fn path(context: &Context, name: &str, file: &Path) -> Result<(), Failure> {
    let path = lookup::find_path(name)?;
    let store = match SqliteStore::open_reading(results::database(context)?) {
        Err(StoreError::Empty) => None,
        store => Some(store?),
    };
    let known = Known::of(store.as_ref(), path.name(), None)?;
    console::write_file(file, known.page(path.as_ref(), |page| page.file()))
}
