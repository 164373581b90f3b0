//! The file of a path whose arms are described by one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A file that describes the arms of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PathFile {
    /// Absolute name; names in its text are relative to its folder.
    pub name: PathBuf,
    pub text: String,
}
