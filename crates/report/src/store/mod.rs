//! Experiments on disk: every trial as it ends, and the outcome when there is one.
//!
//! [`Store`] is what the rest of Wirepath sees; [`SqliteStore`] is the one file
//! under the user's data directory. A run that is killed loses at most the trial
//! it was in.

mod care;
mod error;
mod measurement;
mod packed;
mod reading;
mod schema;
mod sqlite;

use std::collections::BTreeMap;

use model::{Arm, Ended, Machine, Measurement, Outcome};
use serde::{Deserialize, Serialize};

pub use care::{Damage, Prune};
pub use error::StoreError;
pub use sqlite::SqliteStore;

/// What is known of an experiment when it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentHeader {
    /// Unique in the store, e.g. `20261121-083000-probe-1f3a`.
    pub id: String,
    /// RFC 3339 UTC time at which it began; the order of [`Store::list`] and `last`.
    pub started: String,
    /// Path, e.g. `probe`.
    pub path: String,
    /// Load and its parameters, e.g. `kind` → `ping`.
    pub load: BTreeMap<String, String>,
    /// The machine it runs on.
    pub machine: Machine,
    /// Seed of the schedule.
    pub seed: u64,
    /// All arms, in the order they were asked for.
    pub arms: Vec<Arm>,
    /// Wirepath's version.
    pub version: String,
}

/// One trial, saved when it ends.
#[derive(Debug, Clone)]
pub struct TrialRecord {
    /// Place in the order of execution, from 0; unique in the experiment.
    pub ordinal: u32,
    /// Block it belongs to, from 0.
    pub block: u32,
    /// Name of its arm.
    pub arm: String,
    /// Whether its block was warm-up, which no figure counts.
    pub warmup: bool,
    /// Whether the noise gate marked it.
    pub noisy: bool,
    /// Milliseconds from the experiment's start to the trial's.
    pub started_ms: u64,
    /// Wall time of the whole trial, set-up included, nanoseconds.
    pub wall_ns: u64,
    /// What it saw, or why it failed.
    pub result: Result<Measurement, String>,
}

/// Which experiments to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this path.
    pub path: Option<String>,
    /// Only this machine ([`Machine::id`]).
    pub machine: Option<String>,
    /// Only what began then or later: the beginning of an RFC 3339 UTC time, e.g. `2026-11-21`.
    pub since: Option<String>,
    /// Only what began then or earlier, in the same form; a day counts whole.
    pub until: Option<String>,
    /// At most so many, newest first; all when `None`.
    pub limit: Option<u32>,
    /// Leave out so many of the newest.
    pub offset: u32,
}

/// How far an experiment has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Id.
    pub id: String,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    /// Why it ended; [`Ended::Unfinished`] while it runs and after a kill.
    pub ended: Ended,
    /// Trials saved, warm-up and failed ones included.
    pub trials: u32,
    /// Trials that failed.
    pub failed: u32,
    /// Block of the last trial.
    pub block: u32,
    /// Milliseconds from the start to the end of the last trial.
    pub elapsed_ms: u64,
    /// Milliseconds from the start until now, by the clock of whoever asks.
    pub since_start_ms: u64,
    /// Milliseconds that it may take; `None` when it has no limit.
    pub budget_ms: Option<u64>,
    /// Arm of the last trial.
    pub arm: Option<String>,
}

/// One experiment in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Id.
    pub id: String,
    /// RFC 3339 UTC time at which it began.
    pub started: String,
    /// Path.
    pub path: String,
    /// Load and its parameters.
    pub load: BTreeMap<String, String>,
    /// [`Machine::id`].
    pub machine: String,
    /// Wirepath's version.
    pub version: String,
    /// Arms asked for.
    pub arms: u32,
    /// Blocks in which a trial that counts was saved.
    pub blocks: u32,
    /// Trials saved, warm-up and failed ones included.
    pub trials: u32,
    /// Why it ended; [`Ended::Unfinished`] while it runs and after a kill.
    pub ended: Ended,
    /// First headline of the outcome, when there is an outcome.
    pub headline: Option<String>,
}

/// Everything the store holds of one experiment.
#[derive(Debug, Clone)]
pub struct Stored {
    /// What was known at the start.
    pub header: ExperimentHeader,
    /// Why it ended; [`Ended::Unfinished`] while it runs and after a kill.
    pub ended: Ended,
    /// What it came to; `None` when it was killed before that was saved.
    pub outcome: Option<Outcome>,
    /// All trials saved, in order of execution.
    pub trials: Vec<TrialRecord>,
}

/// Where experiments are kept.
pub trait Store: Send {
    /// Records that an experiment begins. Fails when its id is taken.
    fn begin(&mut self, header: &ExperimentHeader) -> Result<(), StoreError>;

    /// Saves one trial of the experiment `id`, at once and for good.
    fn save_trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), StoreError>;

    /// Saves what the experiment `outcome.id` came to, in place of any earlier
    /// outcome, and why it ended.
    fn save_outcome(&mut self, outcome: &Outcome) -> Result<(), StoreError>;

    /// Closes the experiment `id`: records why it ended, with or without an
    /// outcome, and folds the log into the database file.
    fn finish(&mut self, id: &str, ended: Ended) -> Result<(), StoreError>;

    /// Experiments, newest first, unfinished ones included.
    fn list(&self, filter: &Filter) -> Result<Vec<Summary>, StoreError>;

    /// One experiment by id, by a prefix that only it has, or `last` for the
    /// one that began last.
    fn load(&self, wanted: &str) -> Result<Stored, StoreError>;
}
