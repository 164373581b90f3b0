//! Arms: sets of switches that are on.

use serde::{Deserialize, Serialize};

/// What part an arm plays in an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ArmKind {
    /// No switch on; what all others are compared with.
    Baseline,
    /// The baseline a second time: the A/A pair whose difference is the noise floor.
    Control,
    /// Some switches on.
    Variant,
    /// Another program.
    Peer,
}

/// A set of switches that is on, or another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Unique within the experiment, e.g. `+batch`, `iperf3`.
    pub name: String,
    /// Its part in the experiment.
    pub kind: ArmKind,
    /// Ids of the switches that are on, in the path's order; empty for a peer.
    pub switches: Vec<String>,
}

impl Arm {
    /// The empty set.
    pub fn baseline() -> Self {
        Arm { name: "baseline".into(), kind: ArmKind::Baseline, switches: Vec::new() }
    }

    /// The empty set once more, for the A/A pair.
    pub fn control() -> Self {
        Arm { name: "baseline again".into(), kind: ArmKind::Control, switches: Vec::new() }
    }

    /// A set of switches.
    pub fn variant(name: impl Into<String>, switches: Vec<String>) -> Self {
        Arm { name: name.into(), kind: ArmKind::Variant, switches }
    }

    /// The switches of these ids, named after them; the baseline when there is none.
    pub fn of<S: Into<String>>(switches: impl IntoIterator<Item = S>) -> Self {
        let switches: Vec<String> = switches.into_iter().map(Into::into).collect();
        if switches.is_empty() {
            Arm::baseline()
        } else {
            Arm::variant(switches.join("+"), switches)
        }
    }

    /// Another program, by name.
    pub fn peer(name: impl Into<String>) -> Self {
        Arm { name: name.into(), kind: ArmKind::Peer, switches: Vec::new() }
    }

    /// Whether the switch is on.
    pub fn has(&self, switch: &str) -> bool {
        self.switches.iter().any(|s| s == switch)
    }
}
