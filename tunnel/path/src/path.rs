//! The path: its loads, and the session that it opens.

use std::time::Duration;

use model::{Arm, Load, LoadKind, PathError, Session, Support, SwitchId, TypedPath};

use crate::topology::{Offloads, PAYLOAD_BYTES_MAX};
use crate::traffic::Traffic;
use crate::{Switch, session, stream, support, switches, topology};

model::loads! {
    /// Loads of the tunnel.
    pub enum TunnelLoad {
        Flood { ..FLOOD },
        FloodSkb {
            what: "the flood, into a sink that builds a socket buffer of every frame, as a host does",
            ..FLOOD
        },
        Work35 {
            what: "the flood, with 35 ns of extra work on each frame; every arm under bypass",
            peers: &[],
            ..FLOOD
        },
        Work100 {
            what: "the flood, with 100 ns of extra work on each frame; every arm under bypass",
            peers: &[],
            ..FLOOD
        },
        Police50 {
            what: "one flow at a rate; a policer inside the ordered section passes half of it; every \
                   arm under bypass",
            ..AT_A_RATE
        },
        Shape50 {
            what: "one flow at a rate; a shaper behind the restored order passes half of it and drops \
                   the tail; every arm under bypass",
            ..AT_A_RATE
        },
        MultiFlow {
            what: "64 flows in turn, more than any forwarder takes; order is counted within each flow",
            ..FLOOD
        },
        Decap {
            what: "one flow out of the tunnel, more than any forwarder takes",
            ..FLOOD
        },
        DecapSkb {
            what: "load decap, into a sink that builds a socket buffer of every frame, as a host does",
            ..FLOOD
        },
        BothWays {
            what: "one flow into the tunnel and one out of it at once, more than any forwarder takes",
            ..FLOOD
        },
        Imix {
            what: "one flow of frames of 64, 594 and 1518 bytes, seven to four to one, more than any \
                   forwarder takes",
            size_bytes: 0,
            ..FLOOD
        },
        Reload {
            what: "the flood, while the tunnel's outer headers are replaced without a pause; the sink \
                   compares each frame's with both versions; every arm under bypass",
            peers: &[],
            ..FLOOD
        },
        Tcp {
            what: "one TCP stream between sockets, every offload at its default, into the tunnel and out \
                   of the kernel's VXLAN device; arms without bypass",
            judged: JUDGED_STREAM,
            size_bytes: 0,
            peers: &["kernel"],
            ..FLOOD
        },
        MultiFlowHash {
            what: "64 flows in socket buffers that have a hash, as those of a driver do; without flow-hash \
                   the same one; steering goes to every CPU",
            judged: JUDGED_CPUS,
            peers: &["kernel"],
            ..FLOOD
        },
    }
}

const FLOOD: LoadKind = LoadKind {
    name: "flood",
    what: "one flow, more than any forwarder takes, from the kernel's live-frame generator",
    judged: JUDGED,
    size_bytes: 64,
    rate_pps: 0,
    trial: TRIAL,
    peers: &["kernel", "testpmd", "testpmd-packet", "kernel-gretap"],
};
/// Inside our own forwarder.
const AT_A_RATE: LoadKind =
    LoadKind { judged: JUDGED_AT_A_RATE, rate_pps: RATE_PPS, peers: &[], ..FLOOD };

const JUDGED: &[&str] = &["received_pps", "cpu_ns_per_packet"];
const JUDGED_CPUS: &[&str] = &["busiest_cpu_percent", "received_pps", "cpu_ns_per_packet"];
/// CPU time per packet is not judged: source and workers wait by polling.
const JUDGED_AT_A_RATE: &[&str] = &["received_pps"];
/// A packet is not a measure: super-frames cross the forwarder.
const JUDGED_STREAM: &[&str] = &["goodput_bps", "cpu_ns_per_byte"];
/// Less than any arm of our forwarder takes.
const RATE_PPS: u64 = 100_000;
/// Below this rate the burst of the bucket is more than a trial sends.
const LIMITED_PPS_MIN: u64 = 10_000;
const TRIAL: Duration = Duration::from_millis(300);

/// The path.
#[derive(Debug, Default, Clone, Copy)]
pub struct TunnelPath;

impl TypedPath for TunnelPath {
    type Switch = Switch;
    type Kind = TunnelLoad;

    const NAME: &'static str = "tunnel";
    const WHAT: &'static str = "a forwarder into VXLAN or GRETAP: the kernel's, and one over AF_XDP that spreads a flow over workers";

    fn ladder(&self, _load: &Load, kind: TunnelLoad) -> Vec<SwitchId> {
        let cpu_count = sys::affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
        switches::ladder(kind, cpu_count).into_iter().map(SwitchId::from).collect()
    }

    fn support(&self, arm: &Arm, _load: &Load, kind: TunnelLoad) -> Support {
        support::support(arm, kind)
    }

    fn open(&self, load: &Load, kind: TunnelLoad) -> Result<Box<dyn Session>, PathError> {
        if load.far.is_some() {
            return Err(PathError::Invalid {
                what: "the tunnel is proved in a lab of its own".into(),
                remedy: "omit --far; between hosts use tunnel run".into(),
            });
        }
        if Offloads::of(kind) == Offloads::Default {
            return Ok(Box::new(stream::StreamSession::open(load)?));
        }
        if topology::Extra::of(kind).limit.is_some() && load.rate_pps < LIMITED_PPS_MIN {
            return Err(PathError::Invalid {
                what: format!("load {} at {} frames a second", load.kind, load.rate_pps),
                remedy: format!("give --rate of at least {LIMITED_PPS_MIN}"),
            });
        }
        let sizes = wire::probe::HEADER_BYTES..=PAYLOAD_BYTES_MAX;
        let traffic = Traffic::of(kind);
        if !sizes.contains(&traffic.payload_bytes_max(load.size_bytes)) {
            return Err(PathError::Invalid {
                what: format!("a payload of {} bytes", load.size_bytes),
                remedy: format!(
                    "give --size between {} (the probe's header) and {} (inner MTU 1500)",
                    sizes.start(),
                    sizes.end()
                ),
            });
        }
        Ok(Box::new(session::TunnelSession::open(load, kind)?))
    }
}
