//! The service of a path: trials of its arms by another build of this program, or by a stranger's program.
//!
//! The program `wirepath-NAME` is started as `wirepath-NAME answer path NAME`; its greeting describes the path. Both
//! ends of a run between two hosts are such programs. docs/internals/path-contract.md is this service in prose.

mod caller;
mod description;
mod report;

use std::net::IpAddr;
use std::time::Duration;

use model::{Load, Support, WireSpec};
use serde::{Deserialize, Serialize};

pub use self::caller::{far_path, path_program};
pub use self::description::{
    LoadDescription, PATH_GREETING_BYTES_MAX, PathDescription, SwitchDescription, is_path_name,
};
pub use self::report::{CostReport, DeliveryReport, SAMPLES_MAX, TrialReport};
use crate::{Failure, Service};

/// A description or a report breaks a rule of the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(String);

impl From<String> for RuleError {
    fn from(why: String) -> Self {
        RuleError(why)
    }
}

/// Version of the contract: of the description in the greeting, and of every call and answer.
pub const PATH_CONTRACT: u32 = 1;
/// Largest endpoint that a far end hands to the near end, bytes of JSON.
pub const ENDPOINT_BYTES_MAX: usize = 4096;

/// A path whose trials another process runs.
#[derive(Debug)]
pub enum PathService {}

impl Service for PathService {
    const NAME: &str = "path";
    type Call = PathCall;
    type Answer = PathAnswer;

    fn is_interrupt(call: &PathCall) -> bool {
        matches!(call, PathCall::Interrupt {})
    }
}

/// Work of a path. Each call but the last has one answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PathCall {
    /// Asks if an arm can run here: [`PathAnswer::Support`].
    Support { arm: Vec<String>, load: RequestedLoad },
    /// Prepares trials at the near end: [`PathAnswer::Opened`].
    Open {
        load: RequestedLoad,
        /// `None` without a far end.
        far: Option<FarPoint>,
    },
    /// Runs one trial: [`PathAnswer::Measured`] or [`PathAnswer::Recorded`].
    Trial { arm: Vec<String> },
    /// Prepares trials at the far end: [`PathAnswer::Listening`].
    ///
    /// - `address`: its address for the load.
    Listen { load: RequestedLoad, address: IpAddr },
    /// Begins a trial at the far end, before that of the near end: [`PathAnswer::Ready`].
    Begin { arm: Vec<String> },
    /// Ends it: [`PathAnswer::Measured`].
    End {},
    /// Takes everything down: [`PathAnswer::Closed`].
    Close {},
    /// Ends the trial under way early. It has no answer of its own.
    Interrupt {},
}

/// Result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PathAnswer {
    Support(Support),
    /// The interface under test, for the record.
    Opened {
        nic: String,
    },
    Measured(Box<TrialReport>),
    /// A whole measurement as one line of the store, between two builds of this program.
    Recorded(String),
    /// The far end is ready. The near end gets the value as it is: a port, for example.
    Listening {
        endpoint: serde_json::Value,
    },
    Ready {},
    Closed {},
    Failed(Failure),
}

/// A far end as the near end reaches it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarPoint {
    pub address: IpAddr,
    /// Value of [`PathAnswer::Listening`].
    pub endpoint: serde_json::Value,
}

/// Load of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestedLoad {
    /// One of the loads that the greeting describes.
    pub kind: String,
    /// Payload of every datagram in bytes; 0 if the messages have sizes of their own.
    pub size_bytes: usize,
    /// Datagrams per second; 0 if the load has no schedule.
    pub rate_pps: u64,
    /// Length of the measured part of a trial, nanoseconds.
    pub trial_ns: u64,
    /// IPv6 in place of IPv4.
    pub ipv6: bool,
    /// Tag of the frames; `None` without one.
    pub vlan_tag: Option<u16>,
    /// Wire with distance of a lab; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireSpec>,
}

impl From<&Load> for RequestedLoad {
    fn from(load: &Load) -> Self {
        RequestedLoad {
            kind: load.kind.clone(),
            size_bytes: load.size_bytes,
            rate_pps: load.rate_pps,
            trial_ns: load.trial.as_nanos().try_into().unwrap_or(u64::MAX),
            ipv6: load.ipv6,
            vlan_tag: load.vlan_tag,
            wire: load.wire.clone(),
        }
    }
}

impl From<RequestedLoad> for Load {
    fn from(load: RequestedLoad) -> Self {
        Load {
            kind: load.kind,
            size_bytes: load.size_bytes,
            rate_pps: load.rate_pps,
            trial: Duration::from_nanos(load.trial_ns),
            ipv6: load.ipv6,
            vlan_tag: load.vlan_tag,
            wire: load.wire,
            far: None,
        }
    }
}
