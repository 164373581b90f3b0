//! Errors of the store; each message says what to do.

use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("cannot create the results directory {}; choose another with --data-dir", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "cannot write results to {}; check the owner and permissions of the file and of its \
         directory (SQLite writes two files beside it)",
        path.display()
    )]
    NotWritable {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// Without the error of SQLite, which may be one of a broken disk.
    #[error("no space left on the disk of {}; free some and try again", path.display())]
    Full { path: PathBuf },
    #[error("{} is not a Wirepath results file ({why}); name another file or move it away", path.display())]
    NotOurs { path: PathBuf, why: String },
    #[error(
        "{} is damaged; copy it and recover the copy with `sqlite3 FILE .recover`, or move it away",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// A newer Wirepath wrote the file.
    #[error(
        "{} has store version {found}, but this Wirepath supports up to {known}; use the \
         newer Wirepath that wrote it",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        /// Newest version this build knows.
        known: u32,
    },
    /// The file of another user would have to be migrated.
    #[error(
        "{} belongs to user {uid} and is of an older version: run a Wirepath of this version as that user \
         once, or choose another folder with --data-dir", path.display()
    )]
    OlderOfAnother { path: PathBuf, uid: u32 },
    #[error(
        "{} has been locked by another process for too long; find it with `fuser {}`",
        path.display(), path.display()
    )]
    Locked {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    #[error("no experiments stored; `wirepath prove` runs and stores one")]
    Empty,
    #[error(
        "no experiment id begins with `{wanted}`{}; `wirepath history` lists the ids",
        similar.as_ref().map_or(String::new(), |id| format!("; did you mean {id}?"))
    )]
    NoSuchId { wanted: String, similar: Option<String> },
    #[error("{count} ids begin with `{wanted}`; give more of it: {}", shown(candidates, *count))]
    Ambiguous {
        wanted: String,
        /// Some of the ids, newest first.
        candidates: Vec<String>,
        count: usize,
    },
    #[error("cannot begin experiment `{id}`: {why}")]
    BadId { id: String, why: String },
    #[error(
        "experiment `{id}` is stored already, with another content; import it into another folder \
         (--data-dir)"
    )]
    Conflict { id: String },
    #[error("cannot import experiment `{id}`: {why}")]
    NotImportable { id: String, why: &'static str },
    #[error("trial {ordinal} of experiment `{id}` is already stored")]
    TrialExists { id: String, ordinal: u32 },
    #[error(
        "{what} of experiment `{id}` cannot be read; delete the experiment or use the Wirepath that wrote it"
    )]
    Unreadable {
        id: String,
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// More than is read at once; the file may be a stranger's.
    #[error(
        "{what} take more than {limit_bytes} bytes of memory, the most that is read at once; `wirepath history prune` \
         removes experiments"
    )]
    TooMuch { what: String, limit_bytes: u64 },
    #[error("{what} of experiment `{id}` cannot be encoded")]
    Unwritable {
        id: String,
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Any other error of SQLite.
    #[error("{} failed while {doing}", path.display())]
    Sqlite {
        path: PathBuf,
        doing: &'static str,
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
    /// No stored experiment has this id.
    pub fn no_such_id(wanted: &str) -> Self {
        StoreError::NoSuchId { wanted: wanted.to_owned(), similar: None }
    }

    /// Maps an error of SQLite to one that names the file and what was being done.
    pub(crate) fn sqlite(
        path: &Path,
        doing: &'static str,
    ) -> impl Fn(rusqlite::Error) -> StoreError + Copy {
        move |source| StoreError::from_sqlite(path, doing, source)
    }

    pub(crate) fn from_sqlite(path: &Path, doing: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_path_buf();
        match source.sqlite_error_code() {
            _ if is_full(&source) => StoreError::Full { path },
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

/// True if the disk, or the user's part of it, is full. SQLite reports some of its own files that do not fit as a
/// failure of the disk: the index of the log that cannot grow, and a journal that cannot be made.
fn is_full(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || matches!(code, Some(ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMMAP))
}
