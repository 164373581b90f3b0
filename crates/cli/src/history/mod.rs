//! `wirepath history`.

pub(crate) mod args;
pub(crate) mod check;
mod compare;
mod export;
pub(crate) mod import;
pub(crate) mod prune;
#[cfg(feature = "fleet")]
mod share;
mod watch;

use remote::Failure;
use report::screen::{Cell, Screen};
use report::store::{Filter, SqliteStore, Store, StoreError, Summary, TrialRecord};
use report::text::Detail;
use schemars::JsonSchema;
use serde::Serialize;

use crate::results::outcome_of;
use args::HistoryCommand;
use house::console;
use house::context::Context;

use crate::results;

pub(crate) fn run(context: &Context, command: Option<&HistoryCommand>) -> Result<(), Failure> {
    match command {
        None => list(context, args::ROWS, Filter::default()),
        Some(HistoryCommand::List { last, path, name }) => list(
            context,
            *last,
            Filter { path: path.clone(), name: name.clone(), ..Filter::default() },
        ),
        Some(HistoryCommand::Show { id }) => show(context, id),
        Some(HistoryCommand::Compare(args)) => compare::run(context, args),
        Some(HistoryCommand::Watch(args)) => watch::run(context, args),
        Some(HistoryCommand::Export(args)) => export::run(context, args),
        Some(HistoryCommand::Import(args)) => import::run(context, args),
        Some(HistoryCommand::Prune(args)) => prune::run(context, args),
        Some(HistoryCommand::Check) => check::run(context),
    }
}

/// Document of `history list --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ListDocument {
    schema: u32,
    experiments: Vec<Summary>,
}

fn list(context: &Context, last: usize, filter: Filter) -> Result<(), Failure> {
    let is_filtered = filter != Filter::default();
    let filter = Filter { limit: Some(last as u32), ..filter };
    let rows = match SqliteStore::open_reading(results::database(context).file()?) {
        Err(StoreError::Empty) => Vec::new(),
        store => store?.list(&filter)?,
    };
    if context.json {
        return console::json(&ListDocument {
            schema: house::context::DOCUMENT,
            experiments: rows,
        });
    }
    match (rows.is_empty(), is_filtered) {
        (true, true) => {
            return console::text("no experiment matches; all of them: wirepath history");
        }
        (true, false) => return console::text("no experiments yet; run: wirepath prove probe"),
        (false, _) => {}
    }
    console::text(&report::text::list(&rows, console::style()))
}

fn show(context: &Context, id: &str) -> Result<(), Failure> {
    let store = results::database(context).open_reading()?;
    let stored = store.load(id).map_err(runner::store_failure)?;
    let trials: Vec<_> = stored.trials.iter().map(trial_row).collect();
    let outcome = outcome_of(stored);
    if context.json {
        return console::text(&report::json::to_json(&outcome));
    }
    let mut screen = Screen::plain();
    screen.blank();
    screen.line(format!("trials ({})", trials.len()));
    screen.table(&[">", "", "", ">", ""], trials);
    console::text(
        &(report::text::ladder(&outcome, console::style(), Detail::Full) + &screen.finish()),
    )
}

fn trial_row(trial: &TrialRecord) -> Vec<Cell> {
    let note = match &trial.result {
        Err(error) => format!("failed: {error}"),
        Ok(measurement) => {
            let first = measurement.metrics().into_iter().find_map(|metric| {
                let value = metric.value.ok()?;
                Some(format!("{} {value:.0}", metric.name))
            });
            first.unwrap_or_default()
        }
    };
    let warmup = if trial.warmup { " (warm-up)" } else { "" };
    [
        trial.ordinal.to_string(),
        format!("block {}", trial.block),
        trial.arm.clone(),
        format!("{} ms", trial.wall_ns / 1_000_000),
        note + warmup,
    ]
    .map(Cell::plain)
    .into()
}
