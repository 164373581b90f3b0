//! The store in one SQLite file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::{Ended, Outcome};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};

use super::{
    ExperimentHeader, Filter, Store, StoreError, Stored, Summary, TrialRecord, measurement, packed,
    schema,
};
use crate::{answer, json};

/// Largest row, text or blob that SQLite reads or writes; documents and histograms are smaller.
const ROW_BYTES_MAX: i32 = 32 << 20;

/// Time limit for waiting on another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Experiments in one SQLite file.
///
/// Several processes may use the file at once. Each trial is one transaction, in write-ahead mode
/// with `synchronous=NORMAL`: a killed process loses no saved trial; a power cut may lose the last
/// trials, but leaves the file intact.
#[derive(Debug)]
pub struct SqliteStore {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
}

impl SqliteStore {
    /// Opens the file, creates it and its directory (mode 0700) if missing, and migrates an older
    /// file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_waiting(path, BUSY_TIMEOUT)
    }

    /// [`open`](Self::open) with another time limit for other writers.
    pub fn open_waiting(path: impl AsRef<Path>, timeout: Duration) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        make_directory(&path)?;
        let sqlite = StoreError::sqlite(&path, "opening it");
        let mut connection = Connection::open(&path).map_err(sqlite)?;
        distrust(&connection).map_err(sqlite)?;
        connection.busy_timeout(timeout).map_err(sqlite)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(sqlite)?;
        if let Some(uid) = other_owner(&path)
            && !schema::is_current(&connection).map_err(sqlite)?
        {
            return Err(StoreError::OlderOfAnother { path, uid });
        }
        schema::migrate(&mut connection, &path, schema::MIGRATIONS)?;
        // After the migration, which refuses a foreign file before changing anything.
        write_ahead(&connection, timeout).map_err(sqlite)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(sqlite)?;
        Ok(SqliteStore { connection, path })
    }

    /// Opens the file for reading only; this works on a read-only medium and for another user's
    /// file, which stays as it is.
    ///
    /// Errors: [`StoreError::Empty`] if there is no file; none is created.
    pub fn open_reading(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        if !path.exists() {
            return Err(StoreError::Empty);
        }
        let is_own = other_owner(&path).is_none();
        if is_own {
            match Self::open(&path) {
                Err(StoreError::NotWritable { .. } | StoreError::Full { .. }) => {}
                opened => return opened,
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let error = match Self::open_as(&path, path.as_os_str().as_ref(), flags, &[]) {
            Err(error @ (StoreError::NotWritable { .. } | StoreError::Full { .. })) => error,
            opened => return opened,
        };
        // A file in write-ahead mode needs the index of its log beside it, and that cannot be created. Without a log
        // no other process can be writing, and the file can be read as it is.
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        if std::fs::metadata(log).map_or(true, |log| log.len() == 0) {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            return Self::open_as(&path, Path::new(&immutable_uri(&path)), flags, &[]);
        }
        // Data that is only in the log would be silently missing. A process that has the file for itself keeps the
        // index in memory, for which it must be able to lock the file: it is this user's, on a full disk.
        if !is_own {
            return Err(error);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let alone = [("locking_mode", "EXCLUSIVE"), ("query_only", "ON")];
        Self::open_as(&path, &path, flags, &alone).map_err(|_| error)
    }

    /// Opens the file in a way that changes nothing in it.
    fn open_as(
        path: &Path,
        name: &Path,
        flags: OpenFlags,
        pragmas: &[(&str, &str)],
    ) -> Result<Self, StoreError> {
        let sqlite = StoreError::sqlite(path, "opening it");
        let connection = Connection::open_with_flags(name, flags).map_err(sqlite)?;
        distrust(&connection).map_err(sqlite)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(sqlite)?;
        // Sorting may need room.
        connection.pragma_update(None, "temp_store", "MEMORY").map_err(sqlite)?;
        for (name, value) in pragmas {
            connection.pragma_update_and_check(None, name, value, |_| Ok(())).or_else(|error| {
                match error {
                    rusqlite::Error::QueryReturnedNoRows => Ok(()),
                    error => Err(sqlite(error)),
                }
            })?;
        }
        schema::readable(&connection, path)?;
        Ok(SqliteStore { connection, path: path.to_owned() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn sqlite(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
        StoreError::sqlite(&self.path, doing)
    }
}

fn bad_id(header: &ExperimentHeader, why: &str) -> StoreError {
    StoreError::BadId { id: header.id.clone(), why: why.into() }
}

impl Store for SqliteStore {
    fn begin(&mut self, header: &ExperimentHeader) -> Result<(), StoreError> {
        if header.id.is_empty() || header.id == "last" {
            return Err(bad_id(header, "it is not a valid id"));
        }
        let body = serde_json::to_string(header)
            .map_err(|source| unwritable(&header.id, "the header", source))?;
        let made = self.connection.execute(
            "INSERT INTO experiments (id, started, path, machine, header)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![header.id, header.started, header.path, header.machine.id, body],
        );
        match made {
            Err(error) if is_constraint(&error) => Err(bad_id(header, "the id is taken")),
            made => made.map(drop).map_err(self.sqlite("beginning an experiment")),
        }
    }

    fn save_trial(&mut self, id: &str, trial: &TrialRecord) -> Result<(), StoreError> {
        let what = || format!("trial {}", trial.ordinal);
        // Encode before the transaction, to hold the write lock briefly.
        let mut histograms = Vec::new();
        let (body, failure) = match &trial.result {
            Ok(seen) => {
                for (name, histogram) in &seen.segments {
                    let bytes = measurement::histogram_bytes(histogram)
                        .map_err(|source| unwritable(id, what(), source))?;
                    histograms.push((name, bytes));
                }
                let body =
                    measurement::to_json(seen).map_err(|source| unwritable(id, what(), source))?;
                let body = packed::pack(&body).map_err(|source| unwritable(id, what(), source))?;
                (Some(body), None)
            }
            Err(failure) => (None, Some(failure)),
        };
        let path = &self.path;
        let fault = StoreError::sqlite(path, "saving a trial");
        let change = self
            .connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(fault)?;
        let known: bool = change
            .query_row("SELECT EXISTS (SELECT 1 FROM experiments WHERE id = ?1)", [id], |row| {
                row.get(0)
            })
            .map_err(fault)?;
        if !known {
            return Err(StoreError::no_such_id(id));
        }
        let saved = change.execute(
            "INSERT INTO trials (experiment, ordinal, block, arm, warmup, noisy, started_ms,
                                 wall_ns, measurement, failure)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                id,
                trial.ordinal,
                trial.block,
                trial.arm,
                trial.warmup,
                trial.noisy,
                signed(trial.started_ms),
                signed(trial.wall_ns),
                body,
                failure
            ],
        );
        match saved {
            Err(error) if is_constraint(&error) => {
                return Err(StoreError::TrialExists { id: id.into(), ordinal: trial.ordinal });
            }
            saved => saved.map_err(fault)?,
        };
        for (name, bytes) in histograms {
            change
                .execute(
                    "INSERT INTO segments (experiment, ordinal, name, histogram)
                     VALUES (?1, ?2, ?3, ?4)",
                    params![id, trial.ordinal, name, bytes],
                )
                .map_err(fault)?;
        }
        change.commit().map_err(fault)
    }

    fn save_outcome(&mut self, outcome: &Outcome) -> Result<(), StoreError> {
        let headline = answer::headline(outcome);
        let body = packed::pack(&json::to_json(outcome))
            .map_err(|source| unwritable(&outcome.id, "the outcome", source))?;
        let changed = self
            .connection
            .execute(
                "UPDATE experiments SET outcome = ?2, headline = ?3, ended = ?4 WHERE id = ?1",
                params![outcome.id, body, headline, ended_word(outcome.ended)],
            )
            .map_err(self.sqlite("saving an outcome"))?;
        known(changed, &outcome.id)
    }

    fn finish(&mut self, id: &str, ended: Ended) -> Result<(), StoreError> {
        let fault = self.sqlite("closing an experiment");
        let changed = self
            .connection
            .execute(
                "UPDATE experiments SET ended = ?2 WHERE id = ?1",
                params![id, ended_word(ended)],
            )
            .map_err(&fault)?;
        known(changed, id)?;
        // PASSIVE: folds in pages that no other process is reading, without waiting.
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(&fault)
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Summary>, StoreError> {
        self.summaries(filter)
    }

    fn load(&self, wanted: &str) -> Result<Stored, StoreError> {
        self.stored(wanted)
    }
}

/// SQLite has no unsigned 64-bit integers; a signed one holds 292 years of nanoseconds.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

fn known(changed: usize, id: &str) -> Result<(), StoreError> {
    if changed == 0 { Err(StoreError::no_such_id(id)) } else { Ok(()) }
}

pub(super) fn unwritable(
    id: &str,
    what: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Unwritable { id: id.into(), what: what.into(), source: source.into() }
}

/// Word of the JSON form; `NULL` in the file for an unfinished experiment.
pub(super) fn ended_word(ended: Ended) -> Option<&'static str> {
    match ended {
        Ended::Settled => Some("settled"),
        Ended::TimeUp => Some("time-up"),
        Ended::BlockLimit => Some("block-limit"),
        Ended::Interrupted => Some("interrupted"),
        Ended::Unfinished => None,
    }
}

/// Another user may have made the file: its schema must not run anything, and cannot be damaged by SQL.
///
/// Source: <https://sqlite.org/security.html>, section 1.2. The store has neither triggers nor views.
fn distrust(connection: &Connection) -> rusqlite::Result<()> {
    for (setting, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        connection.set_db_config(setting, on)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX)?;
    connection.pragma_update(None, "cell_size_check", true)
}

/// Owner of an existing file, if that is not this user.
fn other_owner(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(path).ok()?.uid();
    // Real, effective, saved and file system's user: proc(5), /proc/PID/status.
    let status = std::fs::read_to_string("/proc/thread-self/status").ok()?;
    let own = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let own: u32 = own.split_whitespace().nth(1)?.parse().ok()?;
    (owner != own).then_some(owner)
}

/// The file as an SQLite URI that declares it immutable.
fn immutable_uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let path: String = path
        .as_os_str()
        .as_bytes()
        .iter()
        .map(|byte: &u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                char::from(*byte).to_string()
            }
            byte => format!("%{byte:02x}"),
        })
        .collect();
    format!("file:{path}?immutable=1")
}

/// Results reveal much about a machine, so a new directory is accessible to its owner only.
fn make_directory(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) else { return Ok(()) };
    // The threads of `serve` may not create one.
    if parent.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(|source| StoreError::Directory { path: parent.to_path_buf(), source })
}

/// Switches the file to write-ahead mode. SQLite's busy handler does not cover this statement, so two
/// processes that open a new file at once need the loop.
fn write_ahead(connection: &Connection, timeout: Duration) -> rusqlite::Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let switched = connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            switched => return switched.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Machine, Measurement, latency_histogram};

    use super::*;

    fn store_with_one_experiment() -> (tempfile::TempDir, SqliteStore) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = SqliteStore::open(directory.path().join("results.db")).unwrap();
        let header = ExperimentHeader {
            id: "a".into(),
            started: "2026-11-21T08:30:00Z".into(),
            path: "probe".into(),
            load: BTreeMap::new(),
            machine: Machine::default(),
            seed: 1,
            schedule: Default::default(),
            arms: Vec::new(),
            version: "0.1.0".into(),
            name: None,
            note: None,
            phrases: Default::default(),
            search: None,
        };
        store.begin(&header).unwrap();
        (directory, store)
    }

    fn trial(ordinal: u32) -> TrialRecord {
        let mut rtt = latency_histogram();
        (0..20_000).for_each(|i| rtt.record(50_000 + i * i % 99_991).unwrap());
        TrialRecord {
            ordinal,
            block: 0,
            arm: "baseline".into(),
            warmup: false,
            noisy: false,
            started_ms: 0,
            wall_ns: 0,
            result: Ok(Measurement {
                segments: [("rtt".to_string(), rtt)].into(),
                ..Measurement::default()
            }),
        }
    }

    #[test]
    fn full_disk_is_reported_and_saved_trials_stay() {
        let (_directory, mut store) = store_with_one_experiment();
        let pages: i64 =
            store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        // SQLite reports a page beyond this limit like a full disk.
        store
            .connection
            .pragma_update_and_check(None, "max_page_count", pages + 8, |_| Ok(()))
            .unwrap();
        let saved = (0..100).find_map(|n| store.save_trial("a", &trial(n)).err().map(|e| (n, e)));
        let (saved, error) = saved.expect("the file is bounded");
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("results.db"), "{error}");
        assert_eq!(store.load("a").unwrap().trials.len(), saved as usize);
    }

    #[test]
    fn rows_have_a_limit_of_length_and_all_that_is_read_at_once_one_of_memory() {
        let (_directory, mut store) = store_with_one_experiment();
        (0..4).for_each(|n| store.save_trial("a", &trial(n)).unwrap());
        assert_eq!(store.trials_within("a", 1 << 30).unwrap().len(), 4);
        // Small as rows, but each histogram has tens of thousands of counts.
        let error = store.trials_within("a", 100_000).unwrap_err().to_string();
        assert!(error.contains("trials of experiment `a`"), "{error}");
        let update = |outcome: &str| {
            let sql = format!("UPDATE experiments SET outcome = {outcome}");
            store.connection.execute(&sql, [])
        };
        update("printf('%.2000c', '{')").unwrap();
        let error = store.outcomes_within(&Filter::default(), 1000).unwrap_err();
        assert!(matches!(error, StoreError::TooMuch { limit_bytes: 1000, .. }), "{error}");
        let error = store.outcomes(&Filter::default()).unwrap_err();
        assert!(matches!(error, StoreError::Unreadable { .. }), "{error}");
        let error = update("zeroblob(40000000)").unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::TooBig), "{error}");
    }

    #[test]
    fn unwritable_file_is_reported() {
        let (_directory, mut store) = store_with_one_experiment();
        // Root passes every permission check; this makes SQLite refuse in the same way.
        store.connection.pragma_update(None, "query_only", true).unwrap();
        let error = store.save_trial("a", &trial(0)).unwrap_err();
        assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    }

    #[test]
    fn file_of_another_user_is_read_and_stays_as_it_is() {
        let (directory, mut store) = store_with_one_experiment();
        store.save_trial("a", &trial(0)).unwrap();
        let path = directory.path().join("results.db");
        // As an older version, closed cleanly.
        store.connection.pragma_update(None, "user_version", 1).unwrap();
        drop(store);
        if std::os::unix::fs::chown(&path, Some(65_534), None).is_err() {
            return testkit::skip("root", "only root gives files to other users");
        }
        let before = std::fs::read(&path).unwrap();
        let store = SqliteStore::open_reading(&path).unwrap();
        assert_eq!(store.load("a").unwrap().trials.len(), 1);
        assert!(store.connection.is_readonly("main").unwrap());
        drop(store);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let error = SqliteStore::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::OlderOfAnother { uid: 65_534, .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_schema_of_another_runs_nothing() {
        let (directory, store) = store_with_one_experiment();
        let path = directory.path().join("results.db");
        drop(store);
        let attacker = Connection::open(&path).unwrap();
        attacker
            .execute_batch(
                "CREATE TABLE loot (x);
                 CREATE TRIGGER t AFTER INSERT ON trials BEGIN INSERT INTO loot VALUES (1); END;
                 ALTER TABLE segments RENAME TO hidden;
                 CREATE VIEW segments AS
                   SELECT experiment, ordinal, 'x' AS name, x'00' AS histogram FROM trials;",
            )
            .unwrap();
        drop(attacker);
        let mut store = SqliteStore::open(&path).unwrap();
        // Without a histogram, which would go to the view.
        let plain = TrialRecord { result: Ok(Measurement::default()), ..trial(0) };
        store.save_trial("a", &plain).unwrap();
        let loot: i64 =
            store.connection.query_row("SELECT count(*) FROM loot", [], |row| row.get(0)).unwrap();
        assert_eq!(loot, 0, "the trigger did not run");
        let error = store.load("a").unwrap_err();
        assert!(format!("{error:?}").contains("view"), "{error:?}");
        let cut = store
            .connection
            .execute_batch("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema");
        assert!(cut.is_err());
    }

    #[test]
    fn write_ahead_log_is_on_and_foreign_keys_are_enforced() {
        let (_directory, store) = store_with_one_experiment();
        let mode: String =
            store.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        let orphan = store
            .connection
            .execute("INSERT INTO trials VALUES ('missing', 0, 0, 'x', 0, 0, 0, 0, NULL, 'y')", []);
        assert!(is_constraint(&orphan.unwrap_err()));
    }
}
