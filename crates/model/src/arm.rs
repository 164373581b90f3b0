//! Arms: sets of switches that are on.

use serde::{Deserialize, Serialize};

use crate::{PathSwitch, SwitchId, SwitchSet};

/// Role of an arm in an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ArmKind {
    /// No switch on; the reference of all others.
    Baseline,
    /// The baseline a second time: the A/A pair whose difference is the noise floor.
    Control,
    /// Some switches on.
    Variant,
    /// Another program.
    Peer,
}

impl ArmKind {
    /// True for arms that are compared with the baseline for a verdict; the control only shows the noise.
    pub fn is_compared(self) -> bool {
        matches!(self, ArmKind::Variant | ArmKind::Peer)
    }
}

/// A set of switches that are on, or another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Unique within the experiment, e.g. `+batch`, `iperf3`.
    pub name: String,
    pub kind: ArmKind,
    /// Switches that are on; empty for a peer.
    pub switches: SwitchSet,
}

impl Arm {
    pub fn baseline() -> Self {
        Arm { name: "baseline".into(), kind: ArmKind::Baseline, switches: SwitchSet::default() }
    }

    /// The empty set a second time, for the A/A pair.
    pub fn control() -> Self {
        let name = "baseline again".into();
        Arm { name, kind: ArmKind::Control, switches: SwitchSet::default() }
    }

    /// A named set of switches.
    pub fn variant(name: impl Into<String>, switches: SwitchSet) -> Self {
        Arm { name: name.into(), kind: ArmKind::Variant, switches }
    }

    /// An arm named after its switches; the baseline if there are none.
    pub fn with<S: Into<SwitchId>>(switches: impl IntoIterator<Item = S>) -> Self {
        let switches: SwitchSet = switches.into_iter().collect();
        if switches.is_empty() {
            Arm::baseline()
        } else {
            Arm::variant(switches.joined(), switches)
        }
    }

    pub fn peer(name: impl Into<String>) -> Self {
        Arm { name: name.into(), kind: ArmKind::Peer, switches: SwitchSet::default() }
    }

    pub fn has(&self, switch: impl PathSwitch) -> bool {
        self.switches.iter().any(|on| on.as_str() == switch.id())
    }
}
