//! `wirepath history check`.

use house::console;
use house::context::Context;
use remote::Failure;
use report::store::{Damage, Filter};
use schemars::JsonSchema;
use serde::Serialize;

use crate::results;

/// Document of `history check --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CheckDocument<'a> {
    file: String,
    bytes: u64,
    experiments: u64,
    damage: &'a [Damage],
}

pub(crate) fn run(context: &Context) -> Result<(), Failure> {
    let store = results::database(context).open_reading()?;
    let damage = store.check()?;
    let experiments = store.count(&Filter::default())?;
    let file = store.path().display();
    if context.json {
        let (file, bytes) = (file.to_string(), store.size_bytes()?);
        console::json(&CheckDocument { file, bytes, experiments, damage: &damage })?;
    } else if damage.is_empty() {
        console::text(&format!(
            "{file}: intact ({})",
            console::count(experiments as usize, "experiment")
        ))?;
    } else {
        for one in &damage {
            let whose = one.experiment.as_deref().unwrap_or("the file");
            console::text(&format!("{whose}: {}", one.what))?;
        }
    }
    match damage.len() {
        0 => Ok(()),
        count => Err(Failure::Threshold(format!(
            "{} damaged; copy {file}, then remove the unreadable experiments or recover the copy \
             with `sqlite3 FILE .recover`",
            console::count(count, "record")
        ))),
    }
}
