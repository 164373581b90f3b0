//! Place of an XDP program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the stack (generic XDP)
    Skb,
    /// In the driver
    Native,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Skb => "SKB",
            XdpMode::Native => "native",
        })
    }
}
