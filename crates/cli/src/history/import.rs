//! `wirepath history import`.

use house::console;
use house::context::Context;
use remote::Failure;
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
        outcomes.extend(runner::read_documents(file)?);
    }
    let imported = results::database(context).open()?.import(&outcomes)?;
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
