//! Quantity and unit of a question between runs.

use serde::{Deserialize, Serialize};

/// Quantity of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The figure itself.
    Value,
    /// The arm's ratio to its own baseline.
    Worth,
}

/// Unit that contributes one figure to a question between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Each run: whatever a day shifts counts as a change.
    Run,
    /// Runs of one machine with less than an hour between the end of one and the start of the next.
    Session,
    /// Runs of one machine and one day (UTC).
    Day,
}

impl Unit {
    /// Name of one, `run`, `session` or `day`.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Run => "run",
            Unit::Session => "session",
            Unit::Day => "day",
        }
    }

    /// Unit of documents that do not state one.
    pub(crate) fn of_older_documents() -> Self {
        Unit::Run
    }
}
