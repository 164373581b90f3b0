//! Description of an experiment: all that is known before its first trial.

use std::collections::BTreeMap;

use model::{Arm, Machine, OutcomeHeader, Phrases, Schedule, Search};
use serde::{Deserialize, Serialize};

/// Description of an experiment, recorded when it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentHeader {
    /// Unique in the store, e.g. `20261121-083000-probe-1f3a`.
    pub id: String,
    /// The user's name for it, and note on it; absent in experiments of versions that had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// RFC 3339 UTC time at which it began; the order of [`Store::list`](super::Store::list) and `last`.
    pub started: String,
    pub path: String,
    /// Load and its parameters, e.g. `kind` → `ping`.
    pub load: BTreeMap<String, String>,
    pub machine: Machine,
    pub seed: u64,
    /// Absent in experiments of versions that had random orders alone.
    #[serde(default, skip_serializing_if = "Schedule::is_default")]
    pub schedule: Schedule,
    /// All arms, in the order of the command line.
    pub arms: Vec<Arm>,
    pub version: String,
    #[serde(default, skip_serializing_if = "Phrases::is_empty")]
    pub phrases: Phrases,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Search>,
}

impl ExperimentHeader {
    /// The description of an outcome with its schedule.
    pub fn new(header: &OutcomeHeader, seed: u64, schedule: Schedule, arms: Vec<Arm>) -> Self {
        let header = header.clone();
        ExperimentHeader {
            id: header.id,
            name: header.name,
            note: header.note,
            started: header.started,
            path: header.path,
            load: header.load,
            machine: header.machine,
            seed,
            schedule,
            arms,
            version: header.version,
            phrases: header.phrases,
            search: header.search,
        }
    }
}

impl From<ExperimentHeader> for OutcomeHeader {
    fn from(header: ExperimentHeader) -> Self {
        OutcomeHeader {
            id: header.id,
            name: header.name,
            note: header.note,
            started: header.started,
            version: header.version,
            machine: header.machine,
            path: header.path,
            load: header.load,
            phrases: header.phrases,
            search: header.search,
        }
    }
}
