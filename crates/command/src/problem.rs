//! Mistakes in an experiment, found before its first trial.

use serde::{Deserialize, Serialize};

/// A mistake that would fail trials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Part of the experiment, such as `client`.
    pub part: String,
    pub why: String,
}
