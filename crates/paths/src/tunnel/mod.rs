//! Path `tunnel`: a GRETAP and VXLAN forwarder that spreads one flow over several workers and
//! keeps its order.
//!
//! Pure parts, each usable and tested alone; none has a clock, a thread or a socket:
//!
//! - [`order`]: tickets taken in order, work done in any, frames let out in order;
//! - [`spec`], [`encap`], [`decap`]: outer headers put in front of a frame and checked off it;
//! - [`fdb`], [`qos`], [`config`]: where frames go, how fast, and who says so.
//!
//! [`forward`] puts them together between two ports of [`io::forward`]; `lab` proves what that
//! is worth.

pub mod config;
pub mod decap;
pub mod encap;
pub mod fdb;
pub mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod inner;
mod lab;
pub mod measure;
pub mod order;
pub mod qos;
pub mod run;
pub mod spec;
mod switches;
mod sync;

use std::time::Duration;

use model::{Arm, Support, Switch};

pub use switches::SWITCHES;

use crate::path::{Load, LoadKind, Path, PathError, Session};

static LOADS: [LoadKind; 4] = [
    LoadKind {
        name: "flood",
        what: "one flow, more than any forwarder takes, from the kernel's live-frame generator",
        judged: JUDGED,
        size_bytes: 64,
        rate_pps: 0,
        trial: TRIAL,
        peers: &["kernel", "testpmd", "testpmd-packet"],
    },
    LoadKind {
        name: "work-35",
        what: "the flood, with 35 ns of extra work on each frame; every arm under bypass",
        judged: JUDGED,
        size_bytes: 64,
        rate_pps: 0,
        trial: TRIAL,
        peers: &[],
    },
    LoadKind {
        name: "work-100",
        what: "the flood, with 100 ns of extra work on each frame; every arm under bypass",
        judged: JUDGED,
        size_bytes: 64,
        rate_pps: 0,
        trial: TRIAL,
        peers: &[],
    },
    LoadKind {
        name: "police-50",
        what: "the flood, half of it dropped by a policer inside the ordered section; every arm \
               under bypass",
        judged: JUDGED,
        size_bytes: 64,
        rate_pps: 0,
        trial: TRIAL,
        peers: &[],
    },
];

const JUDGED: &[&str] = &["received_pps", "cpu_ns_per_packet"];
const TRIAL: Duration = Duration::from_millis(300);

/// The path.
#[derive(Debug, Default, Clone, Copy)]
pub struct TunnelPath;

impl Path for TunnelPath {
    fn name(&self) -> &'static str {
        "tunnel"
    }

    fn what(&self) -> &'static str {
        "a forwarder into VXLAN: the kernel's, and one over AF_XDP that spreads a flow over workers"
    }

    fn switches(&self) -> &'static [Switch] {
        &SWITCHES
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        lab::support(arm, &load.kind, &LOADS)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "the tunnel is proved in a lab of its own".into(),
                remedy: "leave --peer out; between hosts use tunnel run".into(),
            });
        }
        let sizes = wire::probe::HEADER_BYTES..=lab::PAYLOAD_BYTES_MAX;
        if !sizes.contains(&load.size_bytes) {
            return Err(PathError::Invalid {
                what: format!("a payload of {} bytes", load.size_bytes),
                remedy: format!(
                    "give --size between {} (the probe's header) and {} (inner MTU 1500)",
                    sizes.start(),
                    sizes.end()
                ),
            });
        }
        Ok(Box::new(lab::TunnelSession::open(load)?))
    }
}
