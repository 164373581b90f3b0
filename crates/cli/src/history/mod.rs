//! `wirepath history`.

pub(crate) mod args;
pub(crate) mod check;
mod compare;
mod export;
pub(crate) mod import;
pub(crate) mod prune;
mod watch;

use std::fmt::Write;

use remote::Failure;
use report::store::{Filter, SqliteStore, Store, StoreError, Summary};
use schemars::JsonSchema;
use serde::Serialize;

use crate::console;
use crate::context::Context;
use crate::results::{database, open_reading, outcome_of};
use args::HistoryCommand;

pub(crate) fn run(context: &Context, command: Option<&HistoryCommand>) -> Result<(), Failure> {
    match command {
        None => list(context, args::ROWS, None),
        Some(HistoryCommand::List { last, path }) => list(context, *last, path.clone()),
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

fn list(context: &Context, last: usize, path: Option<String>) -> Result<(), Failure> {
    let filter = Filter { limit: Some(last as u32), path, ..Filter::default() };
    let rows = match SqliteStore::open_reading(database(context)?) {
        Err(StoreError::Empty) => Vec::new(),
        store => store?.list(&filter)?,
    };
    if context.json {
        return console::json(&ListDocument {
            schema: crate::context::DOCUMENT,
            experiments: rows,
        });
    }
    if rows.is_empty() {
        return console::text("no experiments yet; run: wirepath prove probe");
    }
    console::text(&report::text::list(&rows, console::style()))
}

fn show(context: &Context, id: &str) -> Result<(), Failure> {
    let stored = open_reading(context)?.load(id)?;
    let trials: Vec<_> = stored
        .trials
        .iter()
        .map(|t| {
            let result = t.result.as_ref();
            let p50 = result.ok().and_then(|m| {
                m.metrics().into_iter().find(|x| x.value.is_ok()).map(|x| (x.name, x.value))
            });
            (t.ordinal, t.block, t.arm.clone(), t.warmup, t.wall_ns, p50, result.err().cloned())
        })
        .collect();
    let outcome = outcome_of(stored);
    if context.json {
        return console::text(&report::json::to_json(&outcome));
    }
    let mut out = report::text::ladder(&outcome, console::style());
    let _ = writeln!(out, "\ntrials ({})", trials.len());
    for (ordinal, block, arm, warmup, wall_ns, first, error) in trials {
        let note = match (&first, error) {
            (_, Some(error)) => format!("failed: {error}"),
            (Some((name, Ok(value))), None) => format!("{name} {value:.0}"),
            _ => String::new(),
        };
        let warmup = if warmup { " (warm-up)" } else { "" };
        let _ = writeln!(
            out,
            "{ordinal:>5}  block {block:>3}  {arm:<18} {:>5} ms  {note}{warmup}",
            wall_ns / 1_000_000
        );
    }
    console::text(&out)
}
