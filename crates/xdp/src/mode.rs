//! Place of an XDP program.

use std::fmt;

/// Where an XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
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
