//! Trials of the tunnel: a source, a forwarder that puts its flow into a tunnel, and a sink at the
//! tunnel's other end, in three namespaces.

use std::net::Ipv4Addr;

use forward::spec::{Carrier, Outer, Tunnel};
use host::net;
use lab::{PairSpec, Triple};
use model::{Arm, PathError};

use crate::Switch;
use crate::path::TunnelLoad;

/// The tunnel's ends, and its network.
pub(crate) const FORWARDER_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const SINK_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
pub(crate) const PREFIX: u8 = 24;
pub(crate) const VNI: u32 = 42;
/// Inner packets of 1500 bytes fit with their outer headers.
pub(crate) const UNDERLAY_MTU: u32 = 1600;
/// Largest UDP payload whose packet is within 1500 bytes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1472;

/// Extra work of the forwarder under a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) work_ns: u64,
    pub(crate) limit: Option<Limit>,
    /// Outer headers are replaced without a pause.
    pub(crate) is_reloaded: bool,
}

/// Token bucket that passes half of the offered rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Inside the ordered section: its drops leave holes.
    Policer,
    /// After the order is restored, behind a queue with tail drop.
    Shaper,
}

impl Extra {
    pub(crate) fn of(load: TunnelLoad) -> Extra {
        let none = Extra::default();
        match load {
            TunnelLoad::Work35 => Extra { work_ns: 35, ..none },
            TunnelLoad::Work100 => Extra { work_ns: 100, ..none },
            TunnelLoad::Police50 => Extra { limit: Some(Limit::Policer), ..none },
            TunnelLoad::Shape50 => Extra { limit: Some(Limit::Shaper), ..none },
            TunnelLoad::Reload => Extra { is_reloaded: true, ..none },
            _ => none,
        }
    }

    pub(crate) fn is_none(self) -> bool {
        self == Extra::default()
    }
}

/// Offloads of the lab's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offloads {
    /// Every frame crosses the wires as it is on Ethernet. GRO is on: the generator's frames reach a
    /// veth only when it polls, and every forwarder is to meet the same interfaces.
    Off,
    /// As the kernel makes interfaces: super-frames of sockets, with unfinished checksums.
    Default,
}

impl Offloads {
    /// Those that a load is about.
    pub(crate) fn of(load: TunnelLoad) -> Offloads {
        if load == TunnelLoad::Tcp { Offloads::Default } else { Offloads::Off }
    }
}

pub(crate) fn build(offloads: Offloads) -> Result<Triple, PathError> {
    let kernels = PairSpec { mtu_bytes: UNDERLAY_MTU, ..PairSpec::default() };
    let spec = match offloads {
        Offloads::Off => PairSpec { gro: true, tso: false, ..kernels },
        Offloads::Default => kernels,
    };
    let lab = Triple::new(&spec).map_err(PathError::part)?;
    prepare(&lab)?;
    Ok(lab)
}

/// Gives the forwarder an address on the underlay, and a static neighbour entry of the sink.
fn prepare(lab: &Triple) -> Result<(), PathError> {
    let far_if = &lab.middle.far_if;
    let prepared = lab.middle.netns.run(|| {
        net::add_address(far_if.ifindex, FORWARDER_IP, PREFIX)?;
        net::set_neighbour(far_if.ifindex, SINK_IP, lab.far.mac)
    });
    prepared.map_err(PathError::part)?.map_err(PathError::part)
}

/// Encapsulation of the lab's tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encapsulation {
    Vxlan,
    /// Without a key.
    Gretap {
        has_sequence: bool,
    },
}

impl Encapsulation {
    /// By an arm's switches.
    pub(crate) fn new(arm: &Arm) -> Encapsulation {
        if arm.has(Switch::Gretap) {
            Encapsulation::Gretap { has_sequence: arm.has(Switch::Sequence) }
        } else {
            Encapsulation::Vxlan
        }
    }

    /// That of the lab's source, when it is at the tunnel's other end: its frames differ in the probe's
    /// number alone, so it has no sequence numbers of GRE.
    pub(crate) fn at_source(self) -> Encapsulation {
        match self {
            Encapsulation::Vxlan => self,
            Encapsulation::Gretap { .. } => Encapsulation::Gretap { has_sequence: false },
        }
    }

    /// Outer headers over IPv4, with their Ethernet header.
    pub(crate) fn headers_bytes(self) -> usize {
        const UNDERLAY_BYTES: usize = 14 + 20;
        UNDERLAY_BYTES
            + match self {
                Encapsulation::Vxlan => 8 + 8,
                Encapsulation::Gretap { has_sequence: false } => 4,
                Encapsulation::Gretap { has_sequence: true } => 8,
            }
    }

    /// Name in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Encapsulation::Vxlan => "VXLAN",
            Encapsulation::Gretap { has_sequence: false } => "GRETAP",
            Encapsulation::Gretap { has_sequence: true } => "GRETAP with sequence numbers",
        }
    }

    /// The tunnel from one end to the other.
    pub(crate) fn tunnel(self, local: Ipv4Addr, remote: Ipv4Addr) -> Tunnel {
        let carrier = match self {
            Encapsulation::Vxlan => Carrier::Vxlan { vni: VNI },
            Encapsulation::Gretap { .. } => Carrier::Gretap { key: None },
        };
        Tunnel { local: local.into(), remote: remote.into(), carrier }
    }

    /// Outer headers of its tunnel on the lab's underlay.
    pub(crate) fn underlay(self, tunnel: &Tunnel, from: [u8; 6], to: [u8; 6]) -> Outer {
        Outer {
            mtu_bytes: UNDERLAY_MTU as u16,
            has_sequence: self == Encapsulation::Gretap { has_sequence: true },
            ..Outer::suggested(tunnel, from, to)
        }
    }
}
