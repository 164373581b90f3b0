//! An agent's memory: the job that it took, until its report is in the archive.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};

use super::{BookError, Report, json, read_versioned, sqlite};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS outbox (
        host TEXT NOT NULL, fence INTEGER NOT NULL, report TEXT NOT NULL, PRIMARY KEY (host, fence));
    CREATE TABLE IF NOT EXISTS seen (host TEXT PRIMARY KEY, fence INTEGER NOT NULL);
";

/// Reports of one agent that are not in the archive yet, each by its fence.
///
/// A change is on disk when its call returns (`synchronous=FULL`), so that a power cut neither starts a
/// measurement twice nor loses its result.
#[derive(Debug)]
pub struct Outbox {
    connection: Connection,
    path: PathBuf,
    host: String,
}

impl Outbox {
    /// Opens the memory of one host's agent in a file that may have those of others, and creates the file and
    /// its folder if missing.
    pub fn open(path: impl AsRef<Path>, host: impl Into<String>) -> Result<Self, BookError> {
        let path = path.as_ref().to_path_buf();
        let connection = sqlite::open(&path, SCHEMA)?;
        Ok(Outbox { connection, path, host: host.into() })
    }

    fn failed(&self, doing: &'static str) -> impl Fn(rusqlite::Error) -> BookError + '_ {
        move |source| BookError::Sqlite { path: self.path.clone(), doing, source }
    }

    /// Writes a report in place of an earlier one of the same fence.
    pub fn put(&mut self, report: &Report) -> Result<(), BookError> {
        let text = json(report);
        let fence = report.fence as i64;
        let path = self.path.clone();
        let failed =
            |source| BookError::Sqlite { path: path.clone(), doing: "keeping a report", source };
        let transaction = self.connection.transaction().map_err(failed)?;
        transaction
            .execute(
                "INSERT OR REPLACE INTO outbox VALUES (?1, ?2, ?3)",
                params![self.host, fence, text],
            )
            .map_err(failed)?;
        let sql = "INSERT INTO seen VALUES (?1, ?2)
                   ON CONFLICT (host) DO UPDATE SET fence = max(fence, ?2)";
        transaction.execute(sql, params![self.host, fence]).map_err(failed)?;
        transaction.commit().map_err(failed)
    }

    /// Forgets a report that is in the archive.
    pub fn forget(&mut self, fence: u64) -> Result<(), BookError> {
        let sql = "DELETE FROM outbox WHERE host = ?1 AND fence = ?2";
        let forgotten = self.connection.execute(sql, params![self.host, fence as i64]);
        forgotten.map(drop).map_err(self.failed("forgetting a report"))
    }

    /// Reports that are not in the archive, oldest first.
    pub fn all(&self) -> Result<Vec<Report>, BookError> {
        let failed = self.failed("reading reports");
        let mut statement = self
            .connection
            .prepare("SELECT report FROM outbox WHERE host = ?1 ORDER BY fence")
            .map_err(&failed)?;
        let texts = statement
            .query_map([&self.host], |row| row.get::<_, String>(0))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(&failed)?;
        let place = self.path.display().to_string();
        texts.iter().map(|text| read_versioned(&place, "report", text)).collect()
    }

    /// Largest fence of any job that was taken; 0 before the first.
    pub fn seen(&self) -> Result<u64, BookError> {
        let found = self
            .connection
            .query_row("SELECT fence FROM seen WHERE host = ?1", [&self.host], |row| {
                row.get::<_, i64>(0)
            })
            .optional();
        found.map(|fence| fence.unwrap_or(0) as u64).map_err(self.failed("reading the last fence"))
    }
}
