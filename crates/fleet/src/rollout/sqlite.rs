//! The ledger in an SQLite file.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

use super::{Ledger, LedgerRow, RolloutHeader};
use crate::book::{BookError, json, sqlite};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS rollouts (
        id TEXT PRIMARY KEY, header TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS transitions (
        number INTEGER PRIMARY KEY AUTOINCREMENT, rollout TEXT NOT NULL REFERENCES rollouts,
        row TEXT NOT NULL);
";

/// Ledger of one roll-out, in a file that has those of all.
#[derive(Debug)]
pub struct SqliteLedger {
    connection: Connection,
    path: PathBuf,
    header: RolloutHeader,
}

impl SqliteLedger {
    /// Begins a roll-out. Creates the file if it is missing.
    pub fn begin(path: impl AsRef<Path>, header: RolloutHeader) -> Result<Self, BookError> {
        let path = path.as_ref().to_path_buf();
        let connection = sqlite::open(&path, SCHEMA)?;
        let ledger = SqliteLedger { connection, path, header };
        ledger.execute(
            "beginning a roll-out",
            "INSERT INTO rollouts VALUES (?1, ?2)",
            params![ledger.header.id, json(&ledger.header)],
        )?;
        Ok(ledger)
    }

    /// Opens a roll-out; `None` if the file has no such id.
    pub fn open(path: impl AsRef<Path>, id: &str) -> Result<Option<Self>, BookError> {
        let path = path.as_ref().to_path_buf();
        let connection = sqlite::open(&path, SCHEMA)?;
        let sql = "SELECT header FROM rollouts WHERE id = ?1";
        let found: Option<String> = connection
            .query_row(sql, [id], |row| row.get(0))
            .optional()
            .map_err(|source| failed(&path, "reading a roll-out", source))?;
        let header = found.map(|text| read(&path, &text)).transpose()?;
        Ok(header.map(|header| SqliteLedger { connection, path, header }))
    }

    /// Ids of all roll-outs, newest first.
    pub fn ids(path: impl AsRef<Path>) -> Result<Vec<String>, BookError> {
        let path = path.as_ref();
        let connection = sqlite::open(path, SCHEMA)?;
        let doing = |source| failed(path, "reading roll-outs", source);
        let sql = "SELECT id FROM rollouts ORDER BY rowid DESC";
        let mut statement = connection.prepare(sql).map_err(doing)?;
        let found = statement.query_map([], |row| row.get(0)).map_err(doing)?;
        found.collect::<Result<_, _>>().map_err(doing)
    }

    /// The roll-out as it was asked for.
    pub fn header(&self) -> &RolloutHeader {
        &self.header
    }

    fn execute(
        &self,
        doing: &'static str,
        sql: &str,
        values: impl rusqlite::Params,
    ) -> Result<(), BookError> {
        let done = self.connection.execute(sql, values);
        done.map(drop).map_err(|source| failed(&self.path, doing, source))
    }
}

fn failed(path: &Path, doing: &'static str, source: rusqlite::Error) -> BookError {
    BookError::Sqlite { path: path.to_path_buf(), doing, source }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Result<T, BookError> {
    serde_json::from_str(text).map_err(|error| BookError::Strange {
        place: path.display().to_string(),
        what: "roll-out",
        why: error.to_string(),
    })
}

impl Ledger for SqliteLedger {
    fn record(&mut self, row: &LedgerRow) -> Result<(), BookError> {
        let sql = "INSERT INTO transitions (rollout, row) VALUES (?1, ?2)";
        self.execute("recording a transition", sql, params![self.header.id, json(row)])
    }

    fn rows(&mut self) -> Result<Vec<LedgerRow>, BookError> {
        let doing = |source| failed(&self.path, "reading transitions", source);
        let sql = "SELECT row FROM transitions WHERE rollout = ?1 ORDER BY number";
        let mut statement = self.connection.prepare(sql).map_err(doing)?;
        let found = statement
            .query_map([&self.header.id], |row| row.get::<_, String>(0))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(doing)?;
        found.iter().map(|text| read(&self.path, text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::{RolloutState, StepAnswer};

    #[test]
    fn rows_are_read_back_by_another_process_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fleet.db");
        let header = |id: &str| RolloutHeader {
            id: id.into(),
            hosts: vec!["this".into()],
            stages: vec!["1".into()],
            seed: u64::MAX,
            plan: "plan".into(),
            request: "{}".into(),
        };
        let mut rows = vec![
            LedgerRow::new(RolloutState::Planned, "asked"),
            LedgerRow::new(RolloutState::Baseline, "drawn"),
        ];
        rows[1].answers.push((0, StepAnswer::Silent("no route".into())));
        rows[1].levels = vec![Some(1.5), None];
        let mut ledger = SqliteLedger::begin(&file, header("a")).unwrap();
        let mut other = SqliteLedger::begin(&file, header("b")).unwrap();
        other.record(&LedgerRow::new(RolloutState::Kept, "other")).unwrap();
        rows.iter().for_each(|row| ledger.record(row).unwrap());
        assert!(SqliteLedger::begin(&file, header("a")).is_err(), "an id is used once");
        let mut again = SqliteLedger::open(&file, "a").unwrap().expect("it is there");
        assert_eq!(again.rows().unwrap(), rows);
        assert_eq!(again.header(), &header("a"));
        assert!(SqliteLedger::open(&file, "c").unwrap().is_none());
        assert_eq!(SqliteLedger::ids(&file).unwrap(), ["b", "a"]);
    }
}
