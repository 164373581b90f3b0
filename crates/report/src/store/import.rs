//! Import of outcomes that another store exported.

use model::{Arm, Outcome};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::packed::{self, Document};
use super::sqlite::{ended_word, unwritable};
use super::{ExperimentHeader, SqliteStore, StoreError};
use crate::{answer, json};

/// Longest id, bytes; those of Wirepath have about 30.
const ID_BYTES_MAX: usize = 128;

impl SqliteStore {
    /// Stores outcomes of exported documents: all of them or, with an error, none.
    ///
    /// Returns the ids of new ones; an outcome that is stored with the same content is left as it is.
    ///
    /// Errors: [`StoreError::NotImportable`] for an invalid id or start; [`StoreError::Conflict`] if
    /// an experiment with this id and another content is stored.
    pub fn import(&mut self, outcomes: &[Outcome]) -> Result<Vec<String>, StoreError> {
        outcomes.iter().try_for_each(check)?;
        let path = &self.path;
        let fault = StoreError::sqlite(path, "importing experiments");
        let change = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(fault)?;
        let mut new_ids = Vec::new();
        for outcome in outcomes {
            match stored(&change, &outcome.id).map_err(fault)? {
                None => {
                    insert(&change, outcome, fault)?;
                    new_ids.push(outcome.id.clone());
                }
                Some(Some(Document(text))) if is_same(&text, outcome) => {}
                Some(_) => return Err(StoreError::Conflict { id: outcome.id.clone() }),
            }
        }
        change.commit().map_err(fault)?;
        Ok(new_ids)
    }
}

/// Ids are separated by commas and spaces, and end in `*`, on the command line.
fn check(outcome: &Outcome) -> Result<(), StoreError> {
    let id = &outcome.id;
    let is_plain = id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    let why = if id.is_empty() || id == "last" || id.len() > ID_BYTES_MAX || !is_plain {
        "its id may have letters, digits, `-`, `_`, `.` and `:` only, and is not `last`"
    } else if !is_time(&outcome.started) {
        "its start is not a UTC time such as 2026-11-21T08:30:00Z"
    } else {
        return Ok(());
    };
    let id = crate::screen::visible(id).chars().take(ID_BYTES_MAX).collect();
    Err(StoreError::NotImportable { id, why })
}

/// True for an RFC 3339 time in UTC, by which experiments are sorted as text.
pub(crate) fn is_time(text: &str) -> bool {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let Some((whole, rest)) = text.split_at_checked(SHAPE.len()) else { return false };
    let fraction = rest.strip_suffix('Z').map(|rest| rest.strip_prefix('.').unwrap_or(rest));
    whole.bytes().zip(SHAPE).all(|(byte, shape): (u8, &u8)| match shape {
        b'd' => byte.is_ascii_digit(),
        shape => byte == *shape,
    }) && fraction.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The stored outcome of an id; `Some(None)` if the experiment has none.
fn stored(connection: &Connection, id: &str) -> rusqlite::Result<Option<Option<Document>>> {
    let query = "SELECT outcome FROM experiments WHERE id = ?1";
    connection.query_row(query, [id], |row| row.get(0)).optional()
}

fn is_same(text: &str, outcome: &Outcome) -> bool {
    json::from_json(text).is_ok_and(|stored| json::to_json(&stored) == json::to_json(outcome))
}

fn insert(
    connection: &Connection,
    outcome: &Outcome,
    fault: impl Fn(rusqlite::Error) -> StoreError,
) -> Result<(), StoreError> {
    let id = &outcome.id;
    let header = serde_json::to_string(&header(outcome))
        .map_err(|source| unwritable(id, "the header", source))?;
    let body = packed::pack(&json::to_json(outcome))
        .map_err(|source| unwritable(id, "the outcome", source))?;
    let inserted = connection.execute(
        "INSERT INTO experiments (id, started, path, machine, header, ended, headline, outcome)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            id,
            outcome.started,
            outcome.path,
            outcome.machine.id,
            header,
            ended_word(outcome.ended),
            answer::headline(outcome),
            body
        ],
    );
    inserted.map(drop).map_err(fault)
}

fn header(outcome: &Outcome) -> ExperimentHeader {
    ExperimentHeader {
        id: outcome.id.clone(),
        name: outcome.name.clone(),
        note: outcome.note.clone(),
        phrases: outcome.phrases.clone(),
        started: outcome.started.clone(),
        path: outcome.path.clone(),
        load: outcome.load.clone(),
        machine: outcome.machine.clone(),
        seed: outcome.seed,
        schedule: outcome.schedule,
        arms: outcome.arms.iter().map(plan_arm).collect(),
        version: outcome.version.clone(),
        search: outcome.search.clone(),
    }
}

fn plan_arm(arm: &model::ArmOutcome) -> Arm {
    Arm {
        name: arm.name.clone(),
        kind: arm.kind,
        switches: arm.switches.iter().map(model::SwitchId::named).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_time;

    #[test]
    fn starts_are_utc_times_with_or_without_a_fraction() {
        for good in ["2026-11-21T08:30:00Z", "2026-11-21T08:30:00.123456789Z"] {
            assert!(is_time(good), "{good}");
        }
        for bad in ["", "2026-11-21", "2026-11-21T08:30:00+01:00", "2026-11-21T08:30:00.x1Z", "é"]
        {
            assert!(!is_time(bad), "{bad}");
        }
    }
}
