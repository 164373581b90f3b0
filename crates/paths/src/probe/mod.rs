//! Path `probe`: packet I/O engines side by side.

mod capabilities;
pub mod endpoint;
pub mod peer;
mod remote;
pub mod role;
mod session;
mod storm;
mod switches;
mod watch;

use std::time::Duration;

use host::lab::Pair;
use host::net::Mac;
use model::{Arm, ArmKind, Support, Switch};

pub use session::{measurement_of, seed};
pub use switches::{SWITCHES, engine_of};
pub use watch::Watch;

use crate::path::{Load, LoadKind, Path, PathError, Session};
use crate::peers;

static LOADS: [LoadKind; 4] = [
    LoadKind {
        name: "ping",
        what: "one datagram at a time, the next when its echo is back (closed loop)",
        judged: &["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(100),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "paced",
        what: "echoed datagrams on a fixed schedule, timed from when they were due (open loop)",
        judged: &["rtt_ns_p50", "rtt_ns_p99", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 10_000,
        trial: Duration::from_millis(200),
        peers: &["sockperf"],
    },
    LoadKind {
        name: "flood",
        what: "as many as the sending engine can send, one way",
        judged: &["received_pps", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(100),
        peers: &["iperf3"],
    },
    LoadKind {
        name: "storm",
        what: "more than any receiver takes, from the kernel's live-frame generator",
        judged: &["received_pps", "cpu_ns_per_packet"],
        size_bytes: 64,
        rate_pps: 0,
        trial: Duration::from_millis(200),
        peers: &[],
    },
];

/// The path.
#[derive(Debug, Default, Clone, Copy)]
pub struct Probe;

/// Trials between two ends that exist already, in place of a lab's.
///
/// - `router`: MAC address of whoever forwards from the near end to the far one; `None` when one
///   wire joins them. Nothing comes back through a router, so it takes a load that goes one way.
/// - `nic`: what they are joined by, for the record.
///
/// Errors: [`PathError::Invalid`] for a load that cannot be had so.
pub fn between(
    pair: Pair,
    router: Option<Mac>,
    nic: String,
    load: &Load,
) -> Result<Box<dyn Session>, PathError> {
    let remedy = match (load.kind.as_str(), router) {
        ("storm", _) => "give ping, paced or flood: it takes a veth that is ours",
        (kind, Some(_)) if kind != "flood" => "give flood: nothing comes back by that way",
        _ => {
            check_size(load)?;
            return Ok(Box::new(session::LabSession::of(pair, router, nic, load)?));
        }
    };
    let what = format!("load {} between ends that exist already", load.kind);
    Err(PathError::Invalid { what, remedy: remedy.to_owned() })
}

fn check_size(load: &Load) -> Result<(), PathError> {
    if (role::PAYLOAD_BYTES_MIN..=8972).contains(&load.size_bytes) {
        return Ok(());
    }
    Err(PathError::Invalid {
        what: format!("a payload of {} bytes", load.size_bytes),
        remedy: format!(
            "give --size between {} (the probe's header) and 8972 (MTU 9000)",
            role::PAYLOAD_BYTES_MIN
        ),
    })
}

impl Path for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn what(&self) -> &'static str {
        "packet I/O engines: UDP sockets, segmentation offload, AF_XDP in all its modes"
    }

    fn switches(&self) -> &'static [Switch] {
        &SWITCHES
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        if load.far.is_some() {
            return match (remote::support(arm), switches::contradiction(arm)) {
                (Support::Yes, Some(why)) => Support::Refused { why },
                (support, _) => support,
            };
        }
        if arm.kind == ArmKind::Peer {
            return peers::support(&arm.name, &load.kind, &LOADS);
        }
        if let Some(why) = switches::contradiction(arm) {
            return Support::Refused { why };
        }
        capabilities::support(arm)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        check_size(load)?;
        match &load.far {
            Some(host) => Ok(Box::new(remote::RemoteSession::open(load, host)?)),
            None => Ok(Box::new(session::LabSession::open(load)?)),
        }
    }
}
