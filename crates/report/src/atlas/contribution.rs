//! The text of a contribution, which is signed as a whole.

use model::Outcome;
use serde::{Deserialize, Serialize};

use super::{Vocabulary, redacted};
use crate::json::{self, JsonError};

/// Version of [`Contribution`]; raised when a field changes its meaning.
pub const CONTRIBUTION_SCHEMA: u32 = 1;

/// Most runs of a contribution.
pub(super) const RUNS_MAX: usize = 200;

/// Runs of one contributor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contribution {
    /// [`CONTRIBUTION_SCHEMA`].
    pub contribution: u32,
    /// True if the contributor asked for names of hosts, paths and commands to stay in it.
    pub names: bool,
    pub runs: Vec<Outcome>,
}

/// A text that is no contribution.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContributionError {
    #[error("not a valid contribution")]
    Shape(#[source] serde_json::Error),
    #[error("contribution schema {found}, but this Wirepath reads {CONTRIBUTION_SCHEMA}")]
    Schema {
        /// Its version.
        found: u32,
    },
    #[error("a contribution of {found} runs; at most {RUNS_MAX} are read")]
    TooManyRuns {
        /// Number of them.
        found: usize,
    },
    #[error("run {number} of the contribution cannot be read")]
    Run {
        /// From 1.
        number: usize,
        #[source]
        source: JsonError,
    },
}

fn shared(outcome: &Outcome, words: Option<&Vocabulary>) -> Outcome {
    match words {
        Some(words) => redacted(outcome, words),
        None => outcome.clone(),
    }
}

impl Contribution {
    /// Runs to share.
    ///
    /// - `words`: `None` to keep all names and texts.
    pub fn new(outcomes: &[Outcome], words: Option<&Vocabulary>) -> Self {
        Contribution {
            contribution: CONTRIBUTION_SCHEMA,
            names: words.is_none(),
            // Floors that are not finite bound nothing, and JSON has no word for them.
            runs: outcomes
                .iter()
                .map(|one| json::finite(&shared(one, words)).into_owned())
                .collect(),
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("only string keys, and nothing that fails to serialise")
    }

    /// Reads a stranger's text.
    pub fn from_json(text: &str) -> Result<Self, ContributionError> {
        let read: Contribution = serde_json::from_str(text).map_err(ContributionError::Shape)?;
        if read.contribution != CONTRIBUTION_SCHEMA {
            return Err(ContributionError::Schema { found: read.contribution });
        }
        let found = read.runs.len();
        if found > RUNS_MAX {
            return Err(ContributionError::TooManyRuns { found });
        }
        for (place, run) in read.runs.iter().enumerate() {
            json::check(run)
                .map_err(|source| ContributionError::Run { number: place + 1, source })?;
        }
        Ok(read)
    }
}
