//! Experiments on disk: every trial as it ends, and the outcome when there is one.
//!
//! [`Store`] is the interface; [`SqliteStore`] implements it with one file under the user's data
//! directory. A killed run loses at most the trial that was under way.

mod error;
mod header;
mod import;
mod maintenance;
pub(crate) mod measurement;
mod packed;
mod reading;
mod schema;
mod sqlite;

use std::collections::BTreeMap;

pub use model::TrialRecord;
use model::{Ended, Outcome};
use serde::Serialize;

pub use error::StoreError;
pub use header::ExperimentHeader;
pub(crate) use import::is_time;
pub use maintenance::{Damage, Prune};
pub use measurement::{from_line, to_line};
pub use sqlite::SqliteStore;

/// Filter for lists of experiments; empty fields let everything through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub path: Option<String>,
    /// Part of the user's name for it, in any case of ASCII letters.
    pub name: Option<String>,
    /// [`model::Machine::id`].
    pub machine: Option<String>,
    /// Earliest start: a prefix of an RFC 3339 UTC time, e.g. `2026-11-21`.
    pub since: Option<String>,
    /// Latest start, in the same form; a day includes all its hours.
    pub until: Option<String>,
    /// Maximum number of rows, newest first.
    pub limit: Option<u32>,
    /// Number of newest rows to skip.
    pub offset: u32,
}

/// Progress of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Progress {
    pub id: String,
    /// RFC 3339 UTC time.
    pub started: String,
    /// [`Ended::Unfinished`] while it runs and after a kill.
    pub ended: Ended,
    /// Stored trials, including warm-up and failures.
    pub trials: u32,
    pub failed: u32,
    /// Block of the last trial.
    pub block: u32,
    /// Milliseconds from the start to the end of the last trial.
    pub elapsed_ms: u64,
    /// Milliseconds from the start until now, by the clock of the reading process.
    pub since_start_ms: u64,
    /// Time limit in milliseconds.
    pub budget_ms: Option<u64>,
    /// Arm of the last trial.
    pub arm: Option<String>,
}

/// One experiment in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    pub id: String,
    /// The user's name for it, or its question.
    #[serde(default)]
    pub title: String,
    /// The user's note on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// RFC 3339 UTC time.
    pub started: String,
    pub path: String,
    /// Load and its parameters.
    pub load: BTreeMap<String, String>,
    /// [`model::Machine::id`].
    pub machine: String,
    pub version: String,
    pub arms: u32,
    /// Blocks with a stored trial, without the warm-up.
    pub blocks: u32,
    /// Stored trials, including warm-up and failures.
    pub trials: u32,
    /// [`Ended::Unfinished`] while it runs and after a kill.
    pub ended: Ended,
    /// First sentence of the outcome, if there is an outcome.
    pub headline: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Stored {
    pub header: ExperimentHeader,
    /// [`Ended::Unfinished`] while it runs and after a kill.
    pub ended: Ended,
    /// `None` if the run was killed before the outcome was saved.
    pub outcome: Option<Outcome>,
    /// In order of execution.
    pub trials: Vec<TrialRecord>,
}

pub trait Store: Send {
    /// Records the start of an experiment. Errors: its id is taken.
    fn begin(&mut self, header: &ExperimentHeader) -> Result<(), StoreError>;

    /// Saves one trial of the experiment `id`; it is on disk when this returns.
    fn save_trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), StoreError>;

    /// Saves the outcome of the experiment `outcome.id`, replacing any earlier one.
    fn save_outcome(&mut self, outcome: &Outcome) -> Result<(), StoreError>;

    /// Records the reason for the end of the experiment `id`, with or without an outcome, and folds
    /// the log into the database file.
    fn finish(&mut self, id: &str, ended: Ended) -> Result<(), StoreError>;

    /// Returns experiments, newest first, including unfinished ones.
    fn list(&self, filter: &Filter) -> Result<Vec<Summary>, StoreError>;

    /// Returns the experiment with this id or unique prefix, or for `last` the one that began
    /// last.
    fn load(&self, wanted: &str) -> Result<Stored, StoreError>;
}
