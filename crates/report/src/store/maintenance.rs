//! Maintenance of the file: pruning, shrinking and checking.

use rusqlite::named_params;

use super::reading::read_header;
use super::{Filter, SqliteStore, StoreError, Summary};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prune {
    /// Experiments that began before this RFC 3339 UTC time.
    pub before: Option<String>,
    /// Number of newest experiments to keep at any age.
    pub keep: u32,
    /// Only experiments of this path; `keep` counts those.
    pub path: Option<String>,
    /// Unfinished experiments that began after this RFC 3339 UTC time may still run, and are kept.
    pub running_since: String,
}

/// A defect in the file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Damage {
    /// Affected experiment; `None` for the file itself.
    pub experiment: Option<String>,
    pub what: String,
}

impl SqliteStore {
    /// Returns the experiments to pass to [`remove`](Self::remove), newest first.
    pub fn prunable(&self, what: &Prune) -> Result<Vec<Summary>, StoreError> {
        let filter = Filter { path: what.path.clone(), offset: what.keep, ..Filter::default() };
        let mut rows = self.summaries(&filter)?;
        rows.retain(|row| {
            let old = what.before.as_ref().is_none_or(|before| row.started < *before);
            let may_run = row.ended == model::Ended::Unfinished && row.started > what.running_since;
            old && !may_run
        });
        Ok(rows)
    }

    /// Removes experiments and their trials in one transaction.
    pub fn remove(&mut self, ids: &[String]) -> Result<(), StoreError> {
        let path = &self.path;
        let fault = StoreError::sqlite(path, "removing experiments");
        let change = self
            .connection
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .map_err(fault)?;
        for id in ids {
            let removed =
                change.execute("DELETE FROM experiments WHERE id = ?1", [id]).map_err(fault)?;
            if removed == 0 {
                return Err(StoreError::no_such_id(id));
            }
        }
        change.commit().map_err(fault)
    }

    /// Returns freed pages to the file system. Temporarily needs as much space as the file has, and
    /// no other writer.
    pub fn shrink(&mut self) -> Result<(), StoreError> {
        self.connection.execute_batch("VACUUM").map_err(self.sqlite("shrinking the file"))?;
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(self.sqlite("shrinking the file"))
    }

    /// Size of the database file, without the log beside it.
    pub fn size_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.pragma("page_count")?.unsigned_abs() * self.pragma("page_size")?.unsigned_abs())
    }

    fn pragma(&self, name: &str) -> Result<i64, StoreError> {
        self.connection
            .pragma_query_value(None, name, |row| row.get(0))
            .map_err(self.sqlite("measuring the file"))
    }

    /// Returns all defects: runs SQLite's own check, checks references between tables, and reads every
    /// record and compares it with the others.
    pub fn check(&self) -> Result<Vec<Damage>, StoreError> {
        // One read transaction, so that a run under way is not taken for damage.
        let _moment =
            self.connection.unchecked_transaction().map_err(self.sqlite("checking the file"))?;
        let mut found: Vec<Damage> = self
            .column("PRAGMA integrity_check")?
            .into_iter()
            .filter(|line| line != "ok")
            .map(|what| Damage { experiment: None, what })
            .collect();
        let orphans = self.column(
            "SELECT \"table\" || ' row ' || coalesce(rowid, '?') || ' refers to a missing row'
             FROM pragma_foreign_key_check",
        )?;
        found.extend(orphans.into_iter().map(|what| Damage { experiment: None, what }));
        for id in self.column("SELECT id FROM experiments ORDER BY started, id")? {
            let defects = self.check_experiment(&id)?;
            found.extend(
                defects.into_iter().map(|what| Damage { experiment: Some(id.clone()), what }),
            );
        }
        Ok(found)
    }

    fn check_experiment(&self, id: &str) -> Result<Vec<String>, StoreError> {
        let fault = self.sqlite("checking an experiment");
        let row = self.connection.query_row(
            "SELECT started, path, machine, header FROM experiments WHERE id = :id",
            named_params! {":id": id},
            |row| {
                let columns: [String; 4] = [row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?];
                Ok(columns)
            },
        );
        let [started, path, machine, header] = match row {
            Err(rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::Utf8Error(..)) => {
                return Ok(vec!["a column is not text".into()]);
            }
            row => row.map_err(&fault)?,
        };
        let mut found = Vec::new();
        match read_header(id, &header) {
            Err(e) => return Ok(vec![with_cause(&e)]),
            Ok(header) => {
                for (what, column, written) in [
                    ("id", id, &header.id),
                    ("start", &started, &header.started),
                    ("path", &path, &header.path),
                    ("machine", &machine, &header.machine.id),
                ] {
                    if column != written {
                        found.push(format!("its {what} is {column}, and {written} in its header"));
                    }
                }
            }
        }
        let stored = match self.stored_within(id) {
            Ok(stored) => stored,
            Err(e @ StoreError::Unreadable { .. }) => {
                found.push(with_cause(&e));
                return Ok(found);
            }
            Err(e) => return Err(e),
        };
        match &stored.outcome {
            Some(outcome) if outcome.id != id => {
                found.push(format!("its outcome is that of {}", outcome.id));
            }
            Some(outcome) if outcome.ended != stored.ended => {
                found.push("it ended otherwise than its outcome says".into());
            }
            _ => {}
        }
        let mut block = 0;
        for (place, trial) in stored.trials.iter().enumerate() {
            if trial.ordinal as usize != place {
                found.push(format!("trial {place} is missing"));
                break;
            }
            if trial.block < block {
                found.push(format!("trial {place} is of an earlier block than the one before"));
                break;
            }
            block = trial.block;
            if !stored.header.arms.iter().any(|arm| arm.name == trial.arm) {
                found.push(format!(
                    "trial {place} is of {}, which is not an arm of its experiment",
                    trial.arm
                ));
            }
        }
        Ok(found)
    }
}

fn with_cause(error: &StoreError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
