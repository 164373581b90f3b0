//! Outcomes of hosts from the ends of their jobs.

use fleet::book::{JobRow, JobState};
use model::Outcome;

/// Outcome of each host, or the reason for its absence.
pub(super) fn outcomes(
    hosts: &[String],
    rows: &[JobRow],
) -> Vec<(String, Result<Outcome, String>)> {
    hosts
        .iter()
        .map(|name| (name.clone(), outcome(rows.iter().find(|row| row.host == *name))))
        .collect()
}

fn outcome(row: Option<&JobRow>) -> Result<Outcome, String> {
    match row {
        Some(row) if row.state == JobState::Done => {
            serde_json::from_str(&row.body).map_err(|error| error.to_string())
        }
        Some(row) => Err(format!("{}: {}", row.state.name(), row.body)),
        None => Err("its job has not ended".to_owned()),
    }
}
