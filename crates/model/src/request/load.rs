//! The load that a request names.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::nanoseconds_if_given;
use crate::TwoHosts;

/// A load of a path; values that are not given are the load's own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadRequest {
    /// Name of a load of the path; `None` for its first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// UDP payload of each datagram, or of each message over TCP, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<usize>,
    /// Datagrams per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// Measured part of one trial.
    #[serde(
        rename = "trial_ns",
        default,
        with = "nanoseconds_if_given",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub trial: Option<Duration>,
    /// IPv6 in place of IPv4.
    #[serde(default)]
    pub ipv6: bool,
    /// Tag of the frames, 16 bits of priority and VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_tag: Option<u16>,
    /// Far end on another host; `None` for a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<TwoHosts>,
    /// A capture in place of generated datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayRequest>,
}

/// A capture that is sent with its own timing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplayRequest {
    pub file: PathBuf,
    /// Place of the sequence number in each payload: byte order, bits, offset in bytes, as in `be32@4`.
    pub sequence: String,
}
