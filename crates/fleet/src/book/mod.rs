//! The books of jobs: what each host should measure, and what became of it.
//!
//! [`Exchange`] carries jobs to agents and their reports back, and may lose everything; [`Archive`] is the
//! book, which must not. [`Coordinator`] and [`Agent`] are written against these traits. SQLite has both in
//! one file; a message broker and a database server can take their places.

mod agent;
mod coordinator;
mod outbox;
pub(crate) mod sqlite;
mod state;

use std::path::PathBuf;

use remote::work::Call;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use agent::{Agent, AgentMoment, Measured};
pub use coordinator::{Coordinator, collect};
pub use outbox::Outbox;
pub use sqlite::SqliteBook;
pub(crate) use state::IS_OPEN;
pub use state::{JobEvent, JobState};

/// Version of [`Job`] and [`Report`], and of their rows.
pub const VERSION: u32 = 2;

/// Attempts of a job, the first included.
pub const ATTEMPTS_MAX: u32 = 3;

/// Time without a sign of life after which a host counts as silent, milliseconds.
pub const SILENCE_MS: u64 = 30_000;

/// A failure of the books.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// SQLite refused.
    #[error("cannot use {} ({doing}); check its owner, permissions and disk, or choose another folder with --data-dir", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// Its error.
        #[source]
        source: rusqlite::Error,
    },
    /// The message broker failed or refused.
    #[error(
        "cannot use the broker at {server} ({doing}); check that it runs and that this end is enrolled there"
    )]
    Broker {
        /// Its address.
        server: String,
        /// The operation.
        doing: &'static str,
        /// Its error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database server failed or refused.
    #[cfg(feature = "servers")]
    #[error(
        "cannot use the database at {server} ({doing}); check that it runs and has the tables of schema.sql"
    )]
    Database {
        /// Its address, without a password.
        server: String,
        /// The operation.
        doing: &'static str,
        /// Its error.
        #[source]
        source: postgres::Error,
    },
    /// The connection of a coordinator was made anew, and another one has the lock.
    #[cfg(feature = "servers")]
    #[error(
        "the database at {server} has another coordinator now, or has not noticed the end of the connection before; wait, \
         or end the other one (`wirepath fleet status`)"
    )]
    Coordinated {
        /// Its address, without a password.
        server: String,
    },
    /// The connection to a database on another host would not be encrypted.
    #[cfg(feature = "servers")]
    #[error(
        "the connection to the database at {server} would not be encrypted: {why}; give the certificate of its authority \
         to `wirepath fleet init --database-ca FILE`, or use a socket of this machine"
    )]
    Unencrypted {
        /// Its address, without a password.
        server: String,
        /// Reason.
        why: String,
    },
    /// A row or message of another version.
    #[error(
        "{place} holds a {what} of version {version}, and this Wirepath reads version {VERSION}; use the Wirepath that \
         wrote it, or give the fleet a new book"
    )]
    Version {
        /// File or server.
        place: String,
        /// Kind of row.
        what: &'static str,
        /// Its version.
        version: u64,
    },
    /// A row or message that this version did not write.
    #[error(
        "{place} holds a {what} that cannot be read ({why}); a newer Wirepath may have written it"
    )]
    Strange {
        /// Server.
        place: String,
        /// Kind of row.
        what: &'static str,
        /// Detail.
        why: String,
    },
}

/// One unit of work of one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// [`VERSION`].
    pub v: u32,
    /// Unique.
    pub job: String,
    /// Experiment to which it belongs.
    pub experiment: String,
    /// Host that does it.
    pub host: String,
    /// From 1.
    pub attempt: u32,
    /// Number that grows with every job that is given, 0 before: reports of an older one change nothing.
    pub fence: u64,
    /// The work.
    pub call: Call,
    /// Time after which it must not begin, milliseconds.
    pub not_after_ms: u64,
}

impl Job {
    /// The first attempt of the one job of a host in an experiment, which is not given yet.
    pub fn new(experiment: &str, host: &str, call: Call, not_after_ms: u64) -> Self {
        Job {
            v: VERSION,
            job: format!("{experiment}-{host}"),
            experiment: experiment.to_owned(),
            host: host.to_owned(),
            attempt: 1,
            fence: 0,
            call,
            not_after_ms,
        }
    }
}

/// The work of a job in its row.
#[derive(Serialize, Deserialize)]
struct CallRow<C> {
    v: u32,
    call: C,
}

/// Text of the work of a job in its row.
pub(crate) fn call_text(job: &Job) -> String {
    json(&CallRow { v: job.v, call: &job.call })
}

/// A value as its text in a file or table.
pub(crate) fn json(value: &impl Serialize) -> String {
    // Texts and numbers always have a JSON form.
    serde_json::to_string(value).unwrap_or_default()
}

/// Reads the text of [`call_text`].
pub(crate) fn read_call(place: &str, text: &str) -> Result<Call, BookError> {
    Ok(read_versioned::<CallRow<Call>>(place, "job", text)?.call)
}

/// Reads a text that has its version in the field `v`. Errors: it has another version, or cannot be read.
///
/// - `place`: file or server that holds it.
fn read_versioned<T: DeserializeOwned>(
    place: &str,
    what: &'static str,
    text: &str,
) -> Result<T, BookError> {
    let strange = |why: String| BookError::Strange { place: place.to_owned(), what, why };
    let value: Value = serde_json::from_str(text).map_err(|error| strange(error.to_string()))?;
    // Rows of version 1 had no version.
    let version = value.get("v").and_then(Value::as_u64).unwrap_or(1);
    if version != u64::from(VERSION) {
        return Err(BookError::Version { place: place.to_owned(), what, version });
    }
    serde_json::from_value(value).map_err(|error| strange(error.to_string()))
}

/// News of a job from its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`VERSION`].
    pub v: u32,
    /// Job of the report.
    pub job: String,
    /// Host that reports.
    pub host: String,
    /// Attempt of the job.
    pub attempt: u32,
    /// Fence of the job.
    pub fence: u64,
    /// Accepted, running, done, failed, refused or interrupted.
    pub state: JobState,
    /// Result, or the reason for its absence; empty while it runs.
    pub body: String,
}

/// A job as the book has it.
#[derive(Debug, Clone, PartialEq)]
pub struct BookEntry {
    /// The job with its latest attempt and fence.
    pub job: Job,
    /// Its state.
    pub state: JobState,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Job.
    pub job: String,
    /// Host.
    pub host: String,
    /// Attempt that ended.
    pub attempt: u32,
    /// Done, failed, refused, interrupted, expired, lost or cancelled.
    pub state: JobState,
    /// Result, or the reason for its absence.
    pub body: String,
}

/// Carries jobs and reports. Delivery is at least once, or not at all; the books correct both.
pub trait Exchange {
    /// Sets the jobs that hosts should do now, in place of earlier ones; one a host.
    fn send(&mut self, jobs: &[Job]) -> Result<(), BookError>;
    /// The job that a host should do now.
    fn next(&mut self, host: &str) -> Result<Option<Job>, BookError>;
    /// Sends a report; it may arrive more than once.
    fn report(&mut self, report: &Report) -> Result<(), BookError>;
    /// Reports that were not acknowledged, oldest first, with a number each.
    fn reports(&mut self) -> Result<Vec<(i64, Report)>, BookError>;
    /// Drops reports.
    fn acknowledge(&mut self, numbers: &[i64]) -> Result<(), BookError>;
    /// Tells agents that the reports of these fences are in the archive.
    fn confirm(&mut self, fences: &[u64]) -> Result<(), BookError>;
    /// True if the report of this fence is in the archive.
    fn is_confirmed(&mut self, fence: u64) -> Result<bool, BookError>;
    /// Takes or renews the right to measure on a host; false if another fence has it.
    fn lease(
        &mut self,
        host: &str,
        fence: u64,
        now_ms: u64,
        until_ms: u64,
    ) -> Result<bool, BookError>;
    /// Ends a lease.
    fn release(&mut self, host: &str, fence: u64) -> Result<(), BookError>;
    /// Records a sign of life of a host.
    fn beat(&mut self, host: &str, now_ms: u64) -> Result<(), BookError>;
    /// For each host, true if it gave a sign of life within [`SILENCE_MS`], or has a lease.
    fn are_alive(&mut self, hosts: &[&str], now_ms: u64) -> Result<Vec<bool>, BookError>;
}

/// The book of jobs. Every step names the state and the fence that it expects, so a coordinator that was
/// replaced changes nothing.
pub trait Archive {
    /// Enters jobs as planned, without a fence; jobs that are there already stay as they are.
    fn plan(&mut self, jobs: &[Job]) -> Result<(), BookError>;
    /// Moves planned jobs on to given, each with a new fence; returns those whose state and fence were as expected.
    ///
    /// A host takes only jobs with a larger fence than any before, so a fence begins when its job is given.
    fn give(&mut self, planned: &[BookEntry]) -> Result<Vec<BookEntry>, BookError>;
    /// Enters reports. One of an older fence, or of a job that has ended, changes nothing; one that is entered again
    /// neither. All are on disk when this returns.
    fn store(&mut self, reports: &[Report]) -> Result<(), BookError>;
    /// Plans the next attempt, whose earlier fence is void; false if state or fence differ.
    fn again(&mut self, entry: &BookEntry) -> Result<bool, BookError>;
    /// Ends a job: writes its row and its last state together; false if state or fence differ, so that a job
    /// has one row.
    fn close(&mut self, entry: &BookEntry, row: &JobRow) -> Result<bool, BookError>;
    /// All jobs of an experiment, or the open ones of all experiments, in the order of their plan.
    fn entries(&mut self, experiment: Option<&str>) -> Result<Vec<BookEntry>, BookError>;
    /// The open jobs of an experiment, in the order of their plan.
    fn open_entries(&mut self, experiment: &str) -> Result<Vec<BookEntry>, BookError>;
    /// Names of experiments that are no steps of roll-outs, the last ones by name first.
    fn newest(&mut self, count: u32) -> Result<Vec<String>, BookError>;
    /// Ends of an experiment's jobs.
    fn rows(&mut self, experiment: &str) -> Result<Vec<JobRow>, BookError>;
}
