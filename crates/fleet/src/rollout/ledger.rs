//! The record of a roll-out.

use serde::{Deserialize, Serialize};

use super::{Answers, Proof, RolloutState};
use crate::book::BookError;

/// A roll-out as it was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutHeader {
    /// Unique.
    pub id: String,
    /// Hosts, as the command line names them.
    pub hosts: Vec<String>,
    /// Sizes of the stages, as the command line has them.
    pub stages: Vec<String>,
    /// Seed of the draw.
    pub seed: u64,
    /// Text of the plan.
    pub plan: String,
    /// Everything else that a process needs to go on with it, as JSON of the command.
    pub request: String,
}

/// A transition: the state that begins, and the outcome of the one before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LedgerRow {
    /// State that begins with this row.
    pub state: RolloutState,
    /// Reason for it.
    pub why: String,
    /// Answers of hosts in the state before, by their places in the list.
    pub answers: Answers,
    /// Hosts of the current stage that are silent and left out.
    pub left_out: Vec<usize>,
    /// Figure of each host without the plan, after the baseline; empty in other rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Option<f64>>,
    /// Proof of the stage, after it was proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Box<Proof>>,
}

impl LedgerRow {
    /// A transition without answers.
    pub fn new(state: RolloutState, why: impl Into<String>) -> Self {
        LedgerRow {
            state,
            why: why.into(),
            answers: Vec::new(),
            left_out: Vec::new(),
            levels: Vec::new(),
            proof: None,
        }
    }
}

/// The record of one roll-out. A row that was recorded survives the end of the process and of the machine.
pub trait Ledger {
    /// Appends a row.
    fn record(&mut self, row: &LedgerRow) -> Result<(), BookError>;
    /// All rows, oldest first.
    fn rows(&mut self) -> Result<Vec<LedgerRow>, BookError>;
}
