//! The load that a request names.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::limits::{RequestError, TIME_MAX, nanoseconds_if_given};
use super::replay::ReplayRequest;
use crate::{TwoHosts, WireSpec};

/// Largest rate, datagrams per second.
const RATE_PPS_MAX: u64 = 10_000_000;
/// VLAN in a tag, beside its priority.
pub const VLAN_MASK: u16 = 0x0fff;
/// VLANs that a tag may name.
pub const VLANS: RangeInclusive<u16> = 1..=4094;

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
    /// Wire with distance between the ends of a lab: `delay=20ms,rate=100mbit,loss=0.1%`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireSpec>,
    /// Far end on another host; `None` for a lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<TwoHosts>,
    /// A capture in place of generated datagrams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayRequest>,
}

impl LoadRequest {
    /// Errors: a value that no command line has, as of a request that another host sent.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.rate_pps.is_some_and(|rate| !(1..=RATE_PPS_MAX).contains(&rate)) {
            return Err(RequestError::Rate);
        }
        if self.trial.is_some_and(|trial| trial.is_zero() || trial > TIME_MAX) {
            return Err(RequestError::Trial);
        }
        if self.vlan_tag.is_some_and(|tag| !VLANS.contains(&(tag & VLAN_MASK))) {
            return Err(RequestError::Vlan);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_command_line_has_are_refused() {
        let load = LoadRequest { kind: Some("flood".into()), ..LoadRequest::default() };
        assert_eq!(load.check(), Ok(()));
        for (bad, error) in [
            (LoadRequest { rate_pps: Some(0), ..load.clone() }, RequestError::Rate),
            (LoadRequest { rate_pps: Some(u64::MAX), ..load.clone() }, RequestError::Rate),
            (LoadRequest { trial: Some(Duration::ZERO), ..load.clone() }, RequestError::Trial),
            (LoadRequest { trial: Some(Duration::MAX), ..load.clone() }, RequestError::Trial),
            (LoadRequest { vlan_tag: Some(0x6000), ..load.clone() }, RequestError::Vlan),
        ] {
            assert_eq!(bad.check(), Err(error), "{bad:?}");
        }
    }
}
