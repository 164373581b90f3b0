//! Switches: the optimisations of a path, each with a name.

use serde::Serialize;

/// What a switch changes, and so who else feels it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Only the process that runs the path.
    Process,
    /// A network interface.
    Interface,
    /// The whole host.
    Host,
    /// A guest of a virtual machine.
    Guest,
}

/// One optimisation of a path: off in the baseline, on in a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// Name on the command line and in results.
    pub id: &'static str,
    /// What is different when it is on, in one sentence.
    pub effect: &'static str,
    /// What it changes.
    pub scope: Scope,
    /// What it needs of the host; empty when nothing.
    pub needs: &'static str,
    /// Where the optimisation is documented.
    pub source: &'static str,
}

/// Whether an arm can run here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Support {
    /// It can.
    Yes,
    /// Something is missing on this host.
    Unsupported {
        /// What cannot be done, e.g. `zero-copy on veth`.
        what: String,
        /// What would make it possible.
        needs: String,
    },
    /// The arm makes no sense or would harm; not run on purpose.
    Refused {
        /// Why.
        why: String,
    },
}

impl Support {
    /// Whether the arm can run.
    pub fn is_yes(&self) -> bool {
        matches!(self, Support::Yes)
    }

    /// Shorthand for [`Support::Unsupported`].
    pub fn unsupported(what: impl Into<String>, needs: impl Into<String>) -> Self {
        Support::Unsupported { what: what.into(), needs: needs.into() }
    }
}
