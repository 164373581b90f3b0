//! A capture as a load.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A capture that is sent with its own timing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    pub file: PathBuf,
    /// Place of the sequence number in each payload: byte order, bits, offset in bytes, as in `be32@4`.
    pub sequence: String,
}
