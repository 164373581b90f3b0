//! The path: its loads, and the session that it opens.

use std::time::Duration;

use model::{Arm, Load, LoadKind, Path, PathError, PathSwitch, Session, Support, SwitchSpec};

use crate::{Switch, session, support, topology};

pub(crate) static LOADS: [LoadKind; 5] = [
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
        what: "one flow at a rate; a policer inside the ordered section passes half of it; every \
               arm under bypass",
        judged: JUDGED_AT_A_RATE,
        size_bytes: 64,
        rate_pps: RATE_PPS,
        trial: TRIAL,
        peers: &[],
    },
    LoadKind {
        name: "shape-50",
        what: "one flow at a rate; a shaper behind the restored order passes half of it and drops \
               the tail; every arm under bypass",
        judged: JUDGED_AT_A_RATE,
        size_bytes: 64,
        rate_pps: RATE_PPS,
        trial: TRIAL,
        peers: &[],
    },
];

const JUDGED: &[&str] = &["received_pps", "cpu_ns_per_packet"];
/// CPU time per packet is not judged: source and workers wait by polling.
const JUDGED_AT_A_RATE: &[&str] = &["received_pps"];
/// Less than any arm of our forwarder takes.
const RATE_PPS: u64 = 100_000;
/// Below this rate the burst of the bucket is more than a trial sends.
const LIMITED_PPS_MIN: u64 = 10_000;
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

    fn switches(&self) -> &'static [SwitchSpec] {
        Switch::SPECS
    }

    fn loads(&self) -> &'static [LoadKind] {
        &LOADS
    }

    fn support(&self, arm: &Arm, load: &Load) -> Support {
        support::support(arm, &load.kind, &LOADS)
    }

    fn open(&self, load: &Load) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "the tunnel is proved in a lab of its own".into(),
                remedy: "omit --far; between hosts use tunnel run".into(),
            });
        }
        if topology::Extra::of(&load.kind).limit.is_some() && load.rate_pps < LIMITED_PPS_MIN {
            return Err(PathError::Invalid {
                what: format!("load {} at {} frames a second", load.kind, load.rate_pps),
                remedy: format!("give --rate of at least {LIMITED_PPS_MIN}"),
            });
        }
        let sizes = wire::probe::HEADER_BYTES..=topology::PAYLOAD_BYTES_MAX;
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
        Ok(Box::new(session::TunnelSession::open(load)?))
    }
}
