//! Reading of experiments.

use rusqlite::{OptionalExtension, Row, named_params, params};

use model::{Ended, Outcome};

use super::packed::Document;
use super::{
    ExperimentHeader, Filter, Progress, SqliteStore, Store, StoreError, Stored, Summary,
    TrialRecord, measurement,
};
use crate::{json, page};

/// Maximum number of ids in an ambiguity error.
const CANDIDATES_SHOWN: usize = 5;
/// Number of newest experiments among which the meant one of an unknown id is looked for.
const SIMILAR_AMONG: u32 = 200;

/// Memory that one reading of outcomes takes for their text; the page of a path reads 40, which have some hundred
/// kilobytes each. A stranger's file may have any number of rows.
const OUTCOMES_BYTES_MAX: u64 = 64 << 20;
/// The same for documents and histograms of the trials of one experiment.
const TRIALS_BYTES_MAX: u64 = 2 << 30;

/// SQL of a [`Filter`]; `:until` is a prefix, so a day includes all its hours.
const WHERE: &str = "WHERE (:path IS NULL OR e.path = :path)
    AND (:name IS NULL OR instr(lower(json_extract(e.header, '$.name')), lower(:name)) > 0)
    AND (:machine IS NULL OR e.machine = :machine)
    AND (:since IS NULL OR e.started >= :since)
    AND (:until IS NULL OR substr(e.started, 1, length(:until)) <= :until)";

impl SqliteStore {
    /// Returns the full id for an id, a unique prefix, or `last`.
    pub(super) fn resolve(&self, wanted: &str) -> Result<String, StoreError> {
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
        // substr instead of LIKE, because an id may contain `_` and `%`.
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
            _ if wanted.is_empty() => Err(StoreError::no_such_id(wanted)),
            0 => {
                let similar = self.similar_id(wanted)?;
                Err(StoreError::NoSuchId { wanted: wanted.into(), similar })
            }
            1 => Ok(ids.remove(0)),
            _ if ids[0] == wanted => Ok(ids.remove(0)),
            count => {
                ids.truncate(CANDIDATES_SHOWN);
                Err(StoreError::Ambiguous { wanted: wanted.into(), candidates: ids, count })
            }
        }
    }

    /// Id of a recent experiment that `wanted` may have meant.
    fn similar_id(&self, wanted: &str) -> Result<Option<String>, StoreError> {
        let filter = Filter { limit: Some(SIMILAR_AMONG), ..Filter::default() };
        let recent: Vec<String> = self.list(&filter)?.into_iter().map(|row| row.id).collect();
        Ok(model::nearest(wanted, recent.iter().map(String::as_str)).map(str::to_owned))
    }

    /// - `bytes_max`: more is an error.
    pub(super) fn trials_within(
        &self,
        id: &str,
        bytes_max: u64,
    ) -> Result<Vec<TrialRecord>, StoreError> {
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
                let body: (Option<Document>, Option<String>) = (row.get(7)?, row.get(8)?);
                Ok((trial_without_result(row)?, body))
            })
            .map_err(&fault)?;
        let mut trials = Vec::new();
        let mut bytes = 0;
        for row in rows {
            let row = row.map_err(|source| self.unread(id, "a trial", source))?;
            let (mut trial, (body, failure)) = row;
            let mut count = |more: usize| {
                bytes += more as u64;
                let fits = bytes <= bytes_max;
                fits.then_some(()).ok_or_else(|| StoreError::TooMuch {
                    what: format!("the trials of experiment `{id}`"),
                    limit_bytes: bytes_max,
                })
            };
            let texts = [body.as_ref().map(|Document(text)| text), failure.as_ref()];
            count(texts.into_iter().flatten().map(String::len).sum())?;
            let unreadable = |source| StoreError::Unreadable {
                id: id.into(),
                what: format!("trial {}", trial.ordinal),
                source,
            };
            trial.result = match (body, failure) {
                (Some(Document(body)), _) => {
                    let mut seen = measurement::from_json(&body).map_err(unreadable)?;
                    let stored = segments
                        .query_map(params![id, trial.ordinal], |row| {
                            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
                        })
                        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                        .map_err(&fault)?;
                    for (name, packed) in stored {
                        let histogram = measurement::histogram(&packed).map_err(unreadable)?;
                        count(histogram.distinct_values() * size_of::<u64>())?;
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

    /// Reads columns of the experiments that match `filter` and `also`, newest first.
    fn experiments<T>(
        &self,
        what: &'static str,
        columns: &str,
        also: &str,
        filter: &Filter,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let fault = self.sqlite(what);
        let mut query = self
            .connection
            .prepare(&format!(
                "SELECT {columns} FROM experiments e {WHERE} {also}
                 ORDER BY e.started DESC, e.id DESC LIMIT :limit OFFSET :offset"
            ))
            .map_err(&fault)?;
        query
            .query_map(
                named_params! {
                    ":path": filter.path,
                    ":name": filter.name,
                    ":machine": filter.machine,
                    ":since": filter.since,
                    ":until": filter.until,
                    ":limit": filter.limit.map_or(-1, i64::from),
                    ":offset": filter.offset,
                },
                row,
            )
            .and_then(Iterator::collect)
            .map_err(&fault)
    }

    pub(super) fn summaries(&self, filter: &Filter) -> Result<Vec<Summary>, StoreError> {
        let columns = "e.header, e.ended, e.headline, e.id,
                       (SELECT count(*) FROM trials t WHERE t.experiment = e.id),
                       (SELECT count(DISTINCT block) FROM trials t
                        WHERE t.experiment = e.id AND NOT t.warmup)";
        let rows = self.experiments("listing experiments", columns, "", filter, |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, Option<String>>(1)?,
                row.get::<_, Option<String>>(2)?,
                row.get::<_, String>(3)?,
                row.get::<_, u32>(4)?,
                row.get::<_, u32>(5)?,
            ))
        })?;
        rows.into_iter()
            .map(|(header, ended, headline, id, trials, blocks)| {
                let header = read_header(&id, &header)?;
                Ok(Summary {
                    title: page::stored_title(&header),
                    note: header.note,
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

    /// Returns outcomes without trials, newest first; experiments without an outcome are left out.
    pub fn outcomes(&self, filter: &Filter) -> Result<Vec<Outcome>, StoreError> {
        self.outcomes_within(filter, OUTCOMES_BYTES_MAX)
    }

    /// - `bytes_max`: more is an error.
    pub(super) fn outcomes_within(
        &self,
        filter: &Filter,
        bytes_max: u64,
    ) -> Result<Vec<Outcome>, StoreError> {
        let columns = "e.id, e.outcome";
        let also = "AND e.outcome IS NOT NULL";
        let mut bytes = 0;
        // Parsed one by one, so that only one text is kept at a time.
        let rows = self.experiments("reading outcomes", columns, also, filter, |row| {
            let (id, Document(text)) = (row.get::<_, String>(0)?, row.get::<_, Document>(1)?);
            bytes += text.len() as u64;
            if bytes > bytes_max {
                return Err(rusqlite::Error::InvalidQuery);
            }
            Ok((id, json::from_json(&text)))
        });
        if bytes > bytes_max {
            let what = "the outcomes".to_owned();
            return Err(StoreError::TooMuch { what, limit_bytes: bytes_max });
        }
        rows?
            .into_iter()
            .map(|(id, read): (String, Result<Outcome, json::JsonError>)| {
                read.map_err(|source| StoreError::Unreadable {
                    id,
                    what: "the outcome".into(),
                    source: source.into(),
                })
            })
            .collect()
    }

    fn unread(&self, id: &str, what: &str, source: rusqlite::Error) -> StoreError {
        match source {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..) => {
                StoreError::Unreadable { id: id.into(), what: what.into(), source: source.into() }
            }
            source => StoreError::from_sqlite(&self.path, "reading an experiment", source),
        }
    }

    /// Returns the number of experiments that match a filter, ignoring its limit and offset.
    pub fn count(&self, filter: &Filter) -> Result<u64, StoreError> {
        self.connection
            .query_row(
                &format!("SELECT count(*) FROM experiments e {WHERE}"),
                named_params! {
                    ":path": filter.path,
                    ":name": filter.name,
                    ":name": filter.name,
                    ":machine": filter.machine,
                    ":since": filter.since,
                    ":until": filter.until,
                },
                |row| row.get::<_, i64>(0),
            )
            .map(|count| count.unsigned_abs())
            .map_err(self.sqlite("counting experiments"))
    }

    pub fn paths(&self) -> Result<Vec<String>, StoreError> {
        self.column("SELECT DISTINCT path FROM experiments ORDER BY path")
    }

    /// Returns the ids of all machines with experiments, sorted.
    pub fn machines(&self) -> Result<Vec<String>, StoreError> {
        self.column("SELECT DISTINCT machine FROM experiments ORDER BY machine")
    }

    pub(super) fn column(&self, query: &str) -> Result<Vec<String>, StoreError> {
        let fault = self.sqlite("listing experiments");
        let mut query = self.connection.prepare(query).map_err(&fault)?;
        query.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(&fault)
    }

    pub(super) fn stored(&self, wanted: &str) -> Result<Stored, StoreError> {
        // One read transaction, so that header, outcome and trials match.
        let _moment = self
            .connection
            .unchecked_transaction()
            .map_err(self.sqlite("reading an experiment"))?;
        let id = self.resolve(wanted)?;
        self.stored_within(&id)
    }

    /// As [`Store::load`](super::Store::load), without the trials if there is an outcome.
    pub fn load_outcome(&self, wanted: &str) -> Result<Stored, StoreError> {
        let _moment = self
            .connection
            .unchecked_transaction()
            .map_err(self.sqlite("reading an experiment"))?;
        let id = self.resolve(wanted)?;
        let stored = self.without_trials(&id)?;
        match stored.outcome {
            Some(_) => Ok(stored),
            None => Ok(Stored { trials: self.trials_within(&id, TRIALS_BYTES_MAX)?, ..stored }),
        }
    }

    /// [`stored`](Self::stored) by full id, inside the caller's transaction.
    pub(super) fn stored_within(&self, id: &str) -> Result<Stored, StoreError> {
        let trials = self.trials_within(id, TRIALS_BYTES_MAX)?;
        Ok(Stored { trials, ..self.without_trials(id)? })
    }

    fn without_trials(&self, id: &str) -> Result<Stored, StoreError> {
        let (header, ended, outcome) = self
            .connection
            .query_row(
                "SELECT header, ended, outcome FROM experiments WHERE id = ?1",
                [id],
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<String>>(1)?,
                        row.get::<_, Option<Document>>(2)?,
                    ))
                },
            )
            .map_err(|source| self.unread(id, "a document", source))?;
        let outcome = outcome.map(|Document(text)| json::from_json(&text)).transpose();
        let outcome = outcome.map_err(|source| StoreError::Unreadable {
            id: id.into(),
            what: "the outcome".into(),
            source: source.into(),
        })?;
        Ok(Stored {
            header: read_header(id, &header)?,
            ended: read_ended(id, ended.as_deref())?,
            outcome,
            trials: Vec::new(),
        })
    }

    /// Returns the progress of an experiment without reading its measurements.
    pub fn progress(&self, wanted: &str) -> Result<Progress, StoreError> {
        let id = self.resolve(wanted)?;
        let fault = self.sqlite("reading an experiment");
        let (header, ended, trials, failed, block, at, since_start) = self
            .connection
            .query_row(
                "SELECT e.header, e.ended, count(t.ordinal), count(t.failure), max(t.block),
                        max(t.started_ms + t.wall_ns / 1000000),
                        (julianday('now') - julianday(e.started)) * 86400000.0
                 FROM experiments e LEFT JOIN trials t ON t.experiment = e.id
                 WHERE e.id = ?1 GROUP BY e.id",
                [&id],
                |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<String>>(1)?,
                        row.get::<_, u32>(2)?,
                        row.get::<_, u32>(3)?,
                        row.get::<_, Option<u32>>(4)?,
                        row.get::<_, Option<i64>>(5)?,
                        row.get::<_, Option<f64>>(6)?,
                    ))
                },
            )
            .map_err(&fault)?;
        let last = self
            .connection
            .query_row(
                "SELECT arm FROM trials WHERE experiment = ?1 ORDER BY ordinal DESC LIMIT 1",
                [&id],
                |row| row.get(0),
            )
            .optional()
            .map_err(&fault)?;
        let header = read_header(&id, &header)?;
        Ok(Progress {
            ended: read_ended(&id, ended.as_deref())?,
            trials,
            failed,
            block: block.unwrap_or(0),
            elapsed_ms: at.unwrap_or(0).unsigned_abs(),
            // An invalid or future start counts as now.
            since_start_ms: since_start.unwrap_or(0.0) as u64,
            budget_ms: header.load.get("time_ms").and_then(|ms| ms.parse().ok()),
            arm: last,
            started: header.started,
            id,
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

pub(super) fn read_header(id: &str, json: &str) -> Result<ExperimentHeader, StoreError> {
    serde_json::from_str(json).map_err(|source| StoreError::Unreadable {
        id: id.into(),
        what: "the header".into(),
        source: source.into(),
    })
}

pub(super) fn read_ended(id: &str, word: Option<&str>) -> Result<Ended, StoreError> {
    let Some(word) = word else { return Ok(Ended::Unfinished) };
    serde_json::from_value(word.into()).map_err(|source| StoreError::Unreadable {
        id: id.into(),
        what: "the ending".into(),
        source: source.into(),
    })
}
