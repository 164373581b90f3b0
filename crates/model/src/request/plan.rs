//! A plan of host settings that is to be proved.

use serde::{Deserialize, Serialize};

use super::{LoadRequest, Programs};

/// The worth of a plan and of each of its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The plan as the text of its file.
    pub plan: String,
    /// Name of the file, for the record.
    pub file: String,
    /// The plan was made for another host or for earlier values: its settings are proved with the values of this host.
    #[serde(default)]
    pub rebase: bool,
    #[serde(default)]
    pub arms: PlanArms,
    /// Namespace at the other end of the wire of the plan's interface: a name, the id of a process, or a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The load passes through the plan's namespace to a temporary sink.
    #[serde(default)]
    pub forward: bool,
    pub load: PlanLoad,
}

/// Load under which a plan is proved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PlanLoad {
    /// A load of a path.
    Path {
        /// Name of the path.
        path: String,
        load: Box<LoadRequest>,
    },
    /// The user's own client and server.
    Programs(Box<Programs>),
}

impl PlanLoad {
    /// Name of the path under which results are stored.
    pub fn path(&self) -> &str {
        match self {
            PlanLoad::Path { path, .. } => path,
            PlanLoad::Programs(_) => Programs::PATH,
        }
    }
}

/// Parts of a plan that become arms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PlanArms {
    /// Each adds a setting to those before it; the last is the plan.
    #[default]
    Ladder,
    /// The plan, and each setting by itself.
    Alone,
    /// The plan only.
    Plan,
    /// No setting: the baseline and its control, for hosts that a roll-out leaves untouched.
    None,
}

impl PlanArms {
    pub fn name(self) -> &'static str {
        match self {
            PlanArms::Ladder => "ladder",
            PlanArms::Alone => "alone",
            PlanArms::Plan => "plan",
            PlanArms::None => "none",
        }
    }
}
