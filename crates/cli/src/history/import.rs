//! `wirepath history import`.

use house::console;
use house::context::Context;
use model::Outcome;
use remote::Failure;
use report::store::{SqliteStore, StoreError};
use schemars::JsonSchema;
use serde::Serialize;

use super::args::ImportArgs;

use crate::results;

/// Document of `history import --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ImportDocument {
    schema: u32,
    /// Ids of the experiments that are new here.
    imported: Vec<String>,
    /// Number of experiments in the files that were stored already.
    known_count: usize,
}

pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<(), Failure> {
    let mut outcomes = Vec::new();
    for file in &args.files {
        outcomes.extend(runner::read_any_documents(file)?);
    }
    let mut store = results::database(context).open()?;
    outcomes.iter_mut().try_for_each(|outcome| keep_stored_start(&store, outcome))?;
    let imported = store.import(&outcomes)?;
    let known_count = outcomes.len() - imported.len();
    if context.json {
        return console::json(&ImportDocument {
            schema: house::context::DOCUMENT,
            imported,
            known_count,
        });
    }
    let count = console::count(imported.len(), "experiment");
    console::text(&match known_count {
        0 => format!("imported {count}"),
        known => format!("imported {count}; {known} stored already"),
    })
}

/// Takes the stored outcome in place of one that another tool's file gave before: its id is of the content, and its start
/// may be that of the file, which a copy has anew.
fn keep_stored_start(store: &SqliteStore, outcome: &mut Outcome) -> Result<(), Failure> {
    if !report::foreign::is_foreign(outcome) {
        return Ok(());
    }
    match store.load_outcome(&outcome.id) {
        Ok(stored) => *outcome = results::outcome_of(stored),
        Err(StoreError::Empty | StoreError::NoSuchId { .. }) => {}
        Err(error) => return Err(runner::store_failure(error)),
    }
    Ok(())
}
