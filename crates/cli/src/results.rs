//! The results database of the command line.

use std::path::PathBuf;

use house::context::Context;
use model::{By, Outcome};
use report::store::{SqliteStore, StoreError, Stored};
use runner::Database;

use crate::lookup;
use crate::shared_args::FailOn;

fn results(folder: Option<PathBuf>) -> Database {
    Database { folder, find_path: lookup::built_in }
}

/// Results in `--data-dir`, else in the user's data folder.
pub(crate) fn database(context: &Context) -> Database {
    results(context.data_dir.clone())
}

/// Outcome of a stored experiment; that of a killed one is computed from its trials.
pub(crate) fn outcome_of(stored: Stored) -> Outcome {
    results(None).outcome(stored)
}

/// Loads a series of experiments, oldest first; see [`Database::series`].
pub(crate) fn series(store: &SqliteStore, wanted: &str) -> Result<Vec<Outcome>, StoreError> {
    results(None).series(store, wanted)
}

/// Question that a threshold asks.
pub(crate) fn by(on: FailOn) -> By {
    match on {
        FailOn::Worse => By::Value,
        FailOn::LessWorth => By::Worth,
    }
}
