//! What can go wrong with the store, and what to do about it.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The directory of the file could not be made.
    #[error("cannot make the results directory {}; choose another with --data-dir", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file or its directory may not be written.
    #[error(
        "cannot write results to {}; check the owner and permissions of the file and of its \
         directory (SQLite writes two files beside it)",
        path.display()
    )]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// No room left.
    #[error("no room left on the disk that holds {}; free some and try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The file is something else.
    #[error("{} is not a Wirepath results file ({why}); name another file or move it away", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What was seen.
        why: String,
    },
    /// The file is damaged.
    #[error(
        "{} is damaged; keep a copy and recover it with `sqlite3 FILE .recover`, or move it away",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// A newer Wirepath wrote the file.
    #[error(
        "{} has store version {found}, this Wirepath knows {known} at most; use the newer \
         Wirepath that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: u32,
        /// Newest version this build knows.
        known: u32,
    },
    /// Another process holds the file.
    #[error(
        "{} has been locked by another process for too long; see who with `fuser {}`",
        path.display(), path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The store is empty.
    #[error("no experiment has been saved yet; `wirepath prove` makes one")]
    Empty,
    /// No experiment has this id or prefix.
    #[error("no experiment has an id that begins with `{wanted}`; `wirepath history` lists them")]
    NoSuchId {
        /// What was asked for.
        wanted: String,
    },
    /// Several have this prefix.
    #[error("`{wanted}` is the beginning of {count} ids; say more: {}", shown(candidates, *count))]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Some of the ids, newest first.
        candidates: Vec<String>,
        /// How many there are.
        count: usize,
    },
    /// The id is taken, or cannot be one.
    #[error("cannot begin experiment `{id}`: {why}")]
    BadId {
        /// The id.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// A trial with this ordinal was saved before.
    #[error("trial {ordinal} of experiment `{id}` was saved before")]
    TrialExists {
        /// The experiment.
        id: String,
        /// The trial.
        ordinal: u32,
    },
    /// A record does not hold what it should.
    #[error(
        "{what} of experiment `{id}` cannot be read; delete the experiment or use the Wirepath that wrote it"
    )]
    Unreadable {
        /// The experiment.
        id: String,
        /// Which record.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A value could not be encoded.
    #[error("{what} of experiment `{id}` cannot be encoded")]
    Unwritable {
        /// The experiment.
        id: String,
        /// Which record.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Anything else that SQLite reports.
    #[error("{} failed while {doing}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
}

fn shown(candidates: &[String], count: usize) -> String {
    let mut list = candidates.join(", ");
    if candidates.len() < count {
        list.push_str(", …");
    }
    list
}

impl StoreError {
    /// Sorts an error of SQLite by what the user can do about it.
    pub(crate) fn from_sqlite(path: &Path, doing: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full { path, source },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Locked { path, source }
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::NotWritable { path, source }
            }
            Some(ErrorCode::NotADatabase) => {
                StoreError::NotOurs { path, why: "it is not an SQLite database".into() }
            }
            Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, source },
            _ => StoreError::Sqlite { path, doing, source },
        }
    }
}
