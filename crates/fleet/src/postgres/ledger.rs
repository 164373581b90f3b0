//! The ledger of roll-outs in the database.

use super::PostgresArchive;
use crate::book::{BookError, json};
use crate::rollout::{Ledger, LedgerRow, RolloutHeader};

/// Ledger of one roll-out.
///
/// A row has a number, and a number has one row: of two processes that conduct the same roll-out, the second one to
/// record a transition ends with an error before it does anything of it. A row that is recorded again, because the
/// answer of the database was lost, stays as it is.
#[derive(Debug)]
pub struct PostgresLedger {
    archive: PostgresArchive,
    header: RolloutHeader,
    /// Rows that this process has read or written.
    rows: i32,
}

impl PostgresLedger {
    /// Begins a roll-out.
    ///
    /// - `archive`: a connection of its own.
    pub fn begin(mut archive: PostgresArchive, header: RolloutHeader) -> Result<Self, BookError> {
        let text = json(&header);
        archive.run("beginning a roll-out", |client| {
            let sql = "INSERT INTO rollouts (id, header) VALUES ($1, $2)";
            client.execute(sql, &[&header.id, &text])
        })?;
        Ok(PostgresLedger { archive, header, rows: 0 })
    }

    /// Opens a roll-out; `None` if the database has no such id.
    pub fn open(mut archive: PostgresArchive, id: &str) -> Result<Option<Self>, BookError> {
        let found = archive.run("reading a roll-out", |client| {
            client
                .query_opt("SELECT header FROM rollouts WHERE id = $1", &[&id])?
                .map(|row| row.try_get(0))
                .transpose()
        })?;
        let Some(text): Option<String> = found else { return Ok(None) };
        let header =
            serde_json::from_str(&text).map_err(|error| archive.strange("roll-out", error))?;
        let mut ledger = PostgresLedger { archive, header, rows: 0 };
        ledger.rows()?;
        Ok(Some(ledger))
    }

    /// The roll-out as it was asked for.
    pub fn header(&self) -> &RolloutHeader {
        &self.header
    }
}

impl PostgresArchive {
    /// Ids of the newest roll-outs with their last transitions, newest first.
    pub fn newest_rollouts(&mut self, count: u32) -> Result<Vec<(String, LedgerRow)>, BookError> {
        let rows = self.run("reading roll-outs", |client| {
            let sql = "SELECT r.id, t.line FROM rollouts r JOIN LATERAL
                       (SELECT line FROM transitions WHERE rollout = r.id ORDER BY number DESC LIMIT 1) t ON true
                       ORDER BY r.place DESC LIMIT $1";
            client.query(sql, &[&i64::from(count)])
        })?;
        let strange = |error: postgres::Error| self.strange("roll-out", error);
        let read = |row: &postgres::Row| {
            let line: String = row.try_get(1).map_err(strange)?;
            Ok((row.try_get(0).map_err(strange)?, self.transition(&line)?))
        };
        rows.iter().map(read).collect()
    }

    fn transition(&self, line: &str) -> Result<LedgerRow, BookError> {
        serde_json::from_str(line).map_err(|error| self.strange("roll-out", error))
    }
}

impl Ledger for PostgresLedger {
    fn record(&mut self, row: &LedgerRow) -> Result<(), BookError> {
        let (number, line) = (self.rows.saturating_add(1), json(row));
        let id = self.header.id.clone();
        let found: String = self.archive.run("recording a transition", |client| {
            let sql = "INSERT INTO transitions (rollout, number, line) VALUES ($1, $2, $3)
                       ON CONFLICT (rollout, number) DO NOTHING";
            client.execute(sql, &[&id, &number, &line])?;
            let sql = "SELECT line FROM transitions WHERE rollout = $1 AND number = $2";
            client.query_one(sql, &[&id, &number])?.try_get(0)
        })?;
        if found != line {
            return Err(self.archive.strange(
                "transition",
                format!("another process conducts {id}; wait for it, or end it first"),
            ));
        }
        self.rows = number;
        Ok(())
    }

    fn rows(&mut self) -> Result<Vec<LedgerRow>, BookError> {
        let id = self.header.id.clone();
        let found = self.archive.run("reading transitions", |client| {
            let sql = "SELECT line FROM transitions WHERE rollout = $1 ORDER BY number";
            client.query(sql, &[&id])
        })?;
        // Those of another process that has begun meanwhile do not count: a record of this one then fails.
        if self.rows == 0 {
            self.rows = i32::try_from(found.len()).unwrap_or(i32::MAX);
        }
        let line = |row: &postgres::Row| {
            let line: String =
                row.try_get(0).map_err(|error| self.archive.strange("transition", error))?;
            self.archive.transition(&line)
        };
        found.iter().map(line).collect()
    }
}
