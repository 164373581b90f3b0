//! XDP filter of a forwarder in front of AF_XDP sockets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sys::bpf::{BpfError, Map, Opened, SocketFilter, embedded, mapped_address};

mod types {
    sys::bpf::shared_types!("tunnel");
}

/// Most tunnels of a filter: those of a configuration, 4096, and those of the next one.
const TUNNELS_MAX: u32 = 8192;

/// Frames that a [`TunnelFilter`] redirects to the sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelFilterSpec {
    pub frames: TunnelFrames,
    /// Accept frames of more than one buffer, as of [`sys::bpf::ProbeFilterSpec::frags`].
    pub frags: bool,
    /// Receive queues of the interface, at least 1.
    pub queues: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelFrames {
    /// All: the side of plain frames.
    All,
    /// Those of these tunnels, unfragmented, with at most one VLAN tag.
    Tunnels {
        /// UDP port of VXLAN.
        vxlan_port: u16,
        ids: Vec<TunnelId>,
    },
}

/// Local end of a tunnel, as the frames that arrive from it name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelId {
    /// Destination of the outer packets.
    pub local: IpAddr,
    pub carrier: TunnelCarrier,
}

/// Network of a tunnel, as its packets carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TunnelCarrier {
    Vxlan {
        vni: u32,
    },
    /// Ethernet over GRE.
    Gre {
        key: Option<u32>,
    },
}

impl TunnelCarrier {
    /// Fields of the programs' maps: VNI or key, and CARRIER_* of tunnel.bpf.c.
    pub(crate) fn id_and_kind(self) -> (u32, u32) {
        match self {
            TunnelCarrier::Vxlan { vni } => (vni, 1),
            TunnelCarrier::Gre { key: None } => (0, 2),
            TunnelCarrier::Gre { key: Some(key) } => (key, 3),
        }
    }
}

impl TunnelId {
    /// `struct tunnel_id` of tunnel.bpf.c.
    fn to_bytes(self) -> [u8; 24] {
        let local = mapped_address(self.local);
        let (id, carrier) = self.carrier.id_and_kind();
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&local.octets());
        bytes[16..20].copy_from_slice(&carrier.to_ne_bytes());
        bytes[20..].copy_from_slice(&id.to_ne_bytes());
        bytes
    }
}

/// XDP program that redirects frames of tunnels, or all, to the AF_XDP socket of their queue.
#[derive(Debug)]
pub struct TunnelFilter {
    /// The program with its sockets.
    pub sockets: SocketFilter,
    tunnels: Map,
}

impl TunnelFilter {
    /// Loads the program that takes a forwarder's frames; nothing is attached yet.
    ///
    /// # Errors
    /// As of [`SocketFilter::load`].
    pub fn load(spec: &TunnelFilterSpec) -> Result<Self, BpfError> {
        let (vxlan_port, all, ids) = match &spec.frames {
            TunnelFrames::All => (0, true, &[][..]),
            TunnelFrames::Tunnels { vxlan_port, ids } => (*vxlan_port, false, &ids[..]),
        };
        let config = types::config { vxlan_port, all: all.into(), reserved: 0 };
        let opened = Opened::open("tunnel", embedded!("tunnel"))?
            .config(&config)?
            .map_entries("tunnels", if all { 1 } else { TUNNELS_MAX })?
            .frags(spec.frags);
        let sockets = SocketFilter::load(opened, spec.queues)?;
        let filter = TunnelFilter { tunnels: sockets.map("tunnels")?, sockets };
        filter.set_tunnels(ids)?;
        Ok(filter)
    }

    /// Replaces the tunnels whose frames are redirected; those in both lists lose none.
    ///
    /// # Errors
    /// [`BpfError::Map`]: more than 8192 tunnels in both lists together, or, before Linux 5.19, without
    /// CAP_BPF where `kernel.unprivileged_bpf_disabled` is set.
    pub fn set_tunnels(&self, ids: &[TunnelId]) -> Result<(), BpfError> {
        let wanted: BTreeSet<_> = ids.iter().map(|id| id.to_bytes()).collect();
        for key in &wanted {
            self.tunnels.set(key, &1_u32.to_ne_bytes())?;
        }
        let known: Vec<_> = self.tunnels.keys().collect();
        for key in known.iter().filter(|key| !wanted.iter().any(|id| id[..] == key[..])) {
            self.tunnels.remove(key)?;
        }
        Ok(())
    }
}
