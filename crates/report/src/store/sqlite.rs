//! The store in one SQLite file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::{Ended, Outcome};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, named_params, params};

use super::{
    ExperimentHeader, Filter, Store, StoreError, Stored, Summary, TrialRecord, measurement, schema,
};
use crate::{json, words};

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ids named in an ambiguity error.
const CANDIDATES_SHOWN: usize = 5;

/// Experiments in one SQLite file.
///
/// Several processes may use the file at once. Each trial is one transaction, in
/// write-ahead mode with `synchronous=NORMAL`: a killed process loses nothing it
/// had saved, a power cut may lose the last trials but never the file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
}

impl SqliteStore {
    /// Opens the file, makes it and its directory (mode 0700) when they are not
    /// there, and brings an older file up to date.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_waiting(path, PATIENCE)
    }

    /// [`open`](Self::open) with another limit on the wait for other writers.
    pub fn open_waiting(path: impl AsRef<Path>, patience: Duration) -> Result<Self, StoreError> {
        let path = path.as_ref().to_path_buf();
        make_directory(&path)?;
        let sqlite = |source| StoreError::from_sqlite(&path, "opening it", source);
        let mut connection = Connection::open(&path).map_err(sqlite)?;
        connection.busy_timeout(patience).map_err(sqlite)?;
        connection.pragma_update(None, "foreign_keys", true).map_err(sqlite)?;
        schema::migrate(&mut connection, &path, schema::MIGRATIONS)?;
        // After the migration, which refuses a file that is not ours untouched.
        write_ahead(&connection, patience).map_err(sqlite)?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(sqlite)?;
        Ok(SqliteStore { connection, path })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn sqlite(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> StoreError + '_ {
        move |source| StoreError::from_sqlite(&self.path, doing, source)
    }

    /// The full id of what the user asked for.
    fn resolve(&self, wanted: &str) -> Result<String, StoreError> {
        let fault = self.sqlite("looking for an experiment");
        if wanted == "last" {
            return self
                .connection
                .query_row(
                    "SELECT id FROM experiments ORDER BY started DESC, id DESC LIMIT 1",
                    [],
                    |row| row.get(0),
                )
                .optional()
                .map_err(fault)?
                .ok_or(StoreError::Empty);
        }
        // substr and not LIKE: `_` and `%` are letters of an id like any other.
        let mut query = self
            .connection
            .prepare(
                "SELECT id FROM experiments WHERE substr(id, 1, length(:wanted)) = :wanted
                 ORDER BY id <> :wanted, started DESC, id DESC",
            )
            .map_err(&fault)?;
        let mut ids = query
            .query_map(named_params! {":wanted": wanted}, |row| row.get::<_, String>(0))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(&fault)?;
        match ids.len() {
            _ if wanted.is_empty() => Err(StoreError::NoSuchId { wanted: wanted.into() }),
            0 => Err(StoreError::NoSuchId { wanted: wanted.into() }),
            1 => Ok(ids.remove(0)),
            _ if ids[0] == wanted => Ok(ids.remove(0)),
            count => {
                ids.truncate(CANDIDATES_SHOWN);
                Err(StoreError::Ambiguous { wanted: wanted.into(), candidates: ids, count })
            }
        }
    }

    fn trials(&self, id: &str) -> Result<Vec<TrialRecord>, StoreError> {
        let fault = self.sqlite("reading trials");
        let mut query = self
            .connection
            .prepare(
                "SELECT ordinal, block, arm, warmup, noisy, started_ms, wall_ns, measurement,
                        failure
                 FROM trials WHERE experiment = ?1 ORDER BY ordinal",
            )
            .map_err(&fault)?;
        let mut segments = self
            .connection
            .prepare("SELECT name, histogram FROM segments WHERE experiment = ?1 AND ordinal = ?2")
            .map_err(&fault)?;
        let rows = query
            .query_map([id], |row| {
                let body: (Option<String>, Option<String>) = (row.get(7)?, row.get(8)?);
                Ok((trial_without_result(row)?, body))
            })
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(&fault)?;
        let mut trials = Vec::with_capacity(rows.len());
        for (mut trial, (body, failure)) in rows {
            let unreadable = |source| StoreError::Unreadable {
                id: id.into(),
                what: format!("trial {}", trial.ordinal),
                source,
            };
            trial.result = match (body, failure) {
                (Some(body), _) => {
                    let mut seen = measurement::from_json(&body).map_err(unreadable)?;
                    let stored = segments
                        .query_map(params![id, trial.ordinal], |row| {
                            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
                        })
                        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                        .map_err(&fault)?;
                    for (name, bytes) in stored {
                        let histogram = measurement::histogram(&bytes).map_err(unreadable)?;
                        seen.segments.insert(name, histogram);
                    }
                    Ok(seen)
                }
                (None, failure) => Err(failure.unwrap_or_default()),
            };
            trials.push(trial);
        }
        Ok(trials)
    }
}

impl Store for SqliteStore {
    fn begin(&mut self, header: &ExperimentHeader) -> Result<(), StoreError> {
        let bad = |why: &str| StoreError::BadId { id: header.id.clone(), why: why.into() };
        if header.id.is_empty() || header.id == "last" {
            return Err(bad("this word cannot be an id"));
        }
        let body = serde_json::to_string(header)
            .map_err(|source| unwritable(&header.id, "the header", source))?;
        let made = self.connection.execute(
            "INSERT INTO experiments (id, started, path, machine, header)
             VALUES (?1, ?2, ?3, ?4, ?5)",
            params![header.id, header.started, header.path, header.machine.id, body],
        );
        match made {
            Err(error) if is_constraint(&error) => Err(bad("the id is taken")),
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
                (Some(body), None)
            }
            Err(failure) => (None, Some(failure)),
        };
        let path = &self.path;
        let fault = |source| StoreError::from_sqlite(path, "saving a trial", source);
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
            return Err(StoreError::NoSuchId { wanted: id.into() });
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
        let headline = words::headlines(outcome).into_iter().next();
        let changed = self
            .connection
            .execute(
                "UPDATE experiments SET outcome = ?2, headline = ?3, ended = ?4 WHERE id = ?1",
                params![outcome.id, json::to_json(outcome), headline, ended_word(outcome.ended)],
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
        // PASSIVE: folds in what no other process is reading, and waits for none.
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(&fault)
    }

    fn list(&self, filter: &Filter) -> Result<Vec<Summary>, StoreError> {
        let fault = self.sqlite("listing experiments");
        let mut query = self
            .connection
            .prepare(
                "SELECT e.header, e.ended, e.headline, e.id,
                        (SELECT count(*) FROM trials t WHERE t.experiment = e.id),
                        (SELECT count(DISTINCT block) FROM trials t
                         WHERE t.experiment = e.id AND NOT t.warmup)
                 FROM experiments e
                 WHERE (:path IS NULL OR e.path = :path)
                   AND (:machine IS NULL OR e.machine = :machine)
                 ORDER BY e.started DESC, e.id DESC LIMIT :limit",
            )
            .map_err(&fault)?;
        let rows = query
            .query_map(
                named_params! {
                    ":path": filter.path,
                    ":machine": filter.machine,
                    ":limit": filter.limit.map_or(-1, i64::from),
                },
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<String>>(1)?,
                        row.get::<_, Option<String>>(2)?,
                        row.get::<_, String>(3)?,
                        row.get::<_, u32>(4)?,
                        row.get::<_, u32>(5)?,
                    ))
                },
            )
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(&fault)?;
        rows.into_iter()
            .map(|(header, ended, headline, id, trials, blocks)| {
                let header = read_header(&id, &header)?;
                Ok(Summary {
                    started: header.started,
                    path: header.path,
                    load: header.load,
                    machine: header.machine.id,
                    version: header.version,
                    arms: header.arms.len() as u32,
                    blocks,
                    trials,
                    ended: read_ended(&id, ended.as_deref())?,
                    headline,
                    id,
                })
            })
            .collect()
    }

    fn load(&self, wanted: &str) -> Result<Stored, StoreError> {
        // One read transaction: header, outcome and trials of the same moment.
        let _moment = self
            .connection
            .unchecked_transaction()
            .map_err(self.sqlite("reading an experiment"))?;
        let id = self.resolve(wanted)?;
        let (header, ended, outcome) = self
            .connection
            .query_row(
                "SELECT header, ended, outcome FROM experiments WHERE id = ?1",
                [&id],
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<String>>(1)?,
                        row.get::<_, Option<String>>(2)?,
                    ))
                },
            )
            .map_err(self.sqlite("reading an experiment"))?;
        let outcome = outcome.as_deref().map(json::from_json).transpose().map_err(|source| {
            StoreError::Unreadable {
                id: id.clone(),
                what: "the outcome".into(),
                source: source.into(),
            }
        })?;
        Ok(Stored {
            header: read_header(&id, &header)?,
            ended: read_ended(&id, ended.as_deref())?,
            outcome,
            trials: self.trials(&id)?,
        })
    }
}

fn trial_without_result(row: &Row<'_>) -> rusqlite::Result<TrialRecord> {
    Ok(TrialRecord {
        ordinal: row.get(0)?,
        block: row.get(1)?,
        arm: row.get(2)?,
        warmup: row.get(3)?,
        noisy: row.get(4)?,
        started_ms: row.get::<_, i64>(5)?.unsigned_abs(),
        wall_ns: row.get::<_, i64>(6)?.unsigned_abs(),
        result: Err(String::new()),
    })
}

/// SQLite has no unsigned 64-bit integers; 292 years of nanoseconds will do.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

fn known(changed: usize, id: &str) -> Result<(), StoreError> {
    if changed == 0 { Err(StoreError::NoSuchId { wanted: id.into() }) } else { Ok(()) }
}

fn unwritable(
    id: &str,
    what: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Unwritable { id: id.into(), what: what.into(), source: source.into() }
}

fn read_header(id: &str, json: &str) -> Result<ExperimentHeader, StoreError> {
    serde_json::from_str(json).map_err(|source| StoreError::Unreadable {
        id: id.into(),
        what: "the header".into(),
        source: source.into(),
    })
}

/// As in the JSON form; `NULL` in the file for an unfinished one.
fn ended_word(ended: Ended) -> Option<&'static str> {
    match ended {
        Ended::Settled => Some("settled"),
        Ended::TimeUp => Some("time-up"),
        Ended::BlockLimit => Some("block-limit"),
        Ended::Interrupted => Some("interrupted"),
        Ended::Unfinished => None,
    }
}

fn read_ended(id: &str, word: Option<&str>) -> Result<Ended, StoreError> {
    let Some(word) = word else { return Ok(Ended::Unfinished) };
    serde_json::from_value(word.into()).map_err(|source| StoreError::Unreadable {
        id: id.into(),
        what: "the ending".into(),
        source: source.into(),
    })
}

/// Results tell much of a machine, so a directory that we make is the user's alone.
fn make_directory(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(|source| StoreError::Directory { path: parent.to_path_buf(), source })
}

/// Switches the file to write-ahead mode. The busy handler does not cover this
/// switch, so two processes that open a new file at once need the loop.
fn write_ahead(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let deadline = Instant::now() + patience;
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
            arms: Vec::new(),
            version: "0.1.0".into(),
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
    fn a_full_disk_is_named_and_what_was_saved_stays() {
        let (_directory, mut store) = store_with_one_experiment();
        let pages: i64 =
            store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        // SQLite answers a page beyond this as it does a full disk.
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
    fn a_file_that_may_not_be_written_says_so() {
        let (_directory, mut store) = store_with_one_experiment();
        // Root passes every permission; this has SQLite refuse in the same way.
        store.connection.pragma_update(None, "query_only", true).unwrap();
        let error = store.save_trial("a", &trial(0)).unwrap_err();
        assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    }

    #[test]
    fn writers_use_the_log_and_references_hold() {
        let (_directory, store) = store_with_one_experiment();
        let mode: String =
            store.connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        let orphan = store
            .connection
            .execute("INSERT INTO trials VALUES ('nobody', 0, 0, 'x', 0, 0, 0, 0, NULL, 'y')", []);
        assert!(is_constraint(&orphan.unwrap_err()));
    }
}
