//! One trial of an arm, as both ends are told of it.

use serde::{Deserialize, Serialize};

/// One trial of an arm.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TrialTurn {
    /// Name of the arm in the result.
    pub(crate) name: String,
    /// $WIREPATH_ARM: of the control, the name of the baseline, so that both run the same command.
    pub(crate) variable: String,
    /// Of the server; of the client if the experiment has no other.
    pub(crate) command: String,
    /// Environment of the arm, that of its switches included.
    pub(crate) env: Vec<(String, String)>,
    /// Environment of the client, by switches.
    #[serde(skip)]
    pub(crate) near_env: Vec<(String, String)>,
    /// Ids of the switches that are on.
    pub(crate) switches: Vec<String>,
    /// Number of the trial, from 1.
    pub(crate) number: u32,
    pub(crate) port: u16,
    /// With `--keep-servers`: the server is started anew.
    #[serde(default)]
    pub(crate) is_fresh: bool,
}
