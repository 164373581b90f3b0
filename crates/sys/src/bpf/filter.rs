//! XDP filter in front of AF_XDP sockets.

mod feed;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::error::BpfError;
use super::link::XdpProgram;
use super::object::{Opened, embedded, map_error, per_cpu, shared_types};
use super::xdp_mode::XdpMode;

pub use feed::{FEED_GROUPS_MAX, FEED_STAMP_BYTES, FeedGroup};

mod probe {
    super::shared_types!("probe");
}

mod tunnel {
    super::shared_types!("tunnel");
}

/// Most destination addresses of a [`ProbeFilterSpec`].
///
/// Source: ADDRESSES_MAX, bpf/probe.bpf.c.
pub const PROBE_ADDRESSES_MAX: usize = 16;
/// Most tunnels of a filter: those of a configuration, 4096, and those of the next one.
const TUNNELS_MAX: u32 = 8192;

/// Frames that the probe's [`SocketFilter`] redirects to the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeFilterSpec<'a> {
    /// Destination addresses, 1 to [`PROBE_ADDRESSES_MAX`]; frames to any other go to the stack.
    pub addresses: &'a [IpAddr],
    /// Destination port of the UDP datagrams (whole, at most one VLAN tag, no IPv6 extension headers); 0 for
    /// none.
    pub udp_port: u16,
    /// ARP, and ICMP over IPv4 to these addresses, too; ICMPv6 is always the stack's.
    pub arp_icmp: bool,
    /// Tag (priority and VLAN) of the frames; `None` accepts any, and none. Those of other VLANs are the
    /// stack's. One without a tag gets this one, because a device may have removed it.
    pub vlan_tag: Option<u16>,
    /// Accept frames of more than one buffer (jumbo in native mode); the
    /// sockets must be bound with XDP_USE_SG then.
    pub frags: bool,
    /// Receive queues of the interface, at least 1.
    pub queues: u32,
}

/// Frames that a forwarder's [`SocketFilter`] redirects to the sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelFilterSpec {
    pub frames: TunnelFrames,
    /// Accept frames of more than one buffer, as of [`ProbeFilterSpec::frags`].
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
    /// Fields of the programs' maps: VNI or key, and CARRIER_* of bpf/tunnel.bpf.c.
    pub fn id_and_kind(self) -> (u32, u32) {
        match self {
            TunnelCarrier::Vxlan { vni } => (vni, 1),
            TunnelCarrier::Gre { key: None } => (0, 2),
            TunnelCarrier::Gre { key: Some(key) } => (key, 3),
        }
    }
}

impl TunnelId {
    /// `struct tunnel_id` of bpf/tunnel.bpf.c.
    fn to_bytes(self) -> [u8; 24] {
        let local = mapped(self.local);
        let (id, carrier) = self.carrier.id_and_kind();
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&local.octets());
        bytes[16..20].copy_from_slice(&carrier.to_ne_bytes());
        bytes[20..].copy_from_slice(&id.to_ne_bytes());
        bytes
    }
}

/// Form in which the programs compare addresses: IPv4 as ::ffff:a.b.c.d.
fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Counters of a [`SocketFilter`] over all CPUs, in frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Redirected to a socket, which may have dropped them: see XDP_STATISTICS.
    pub redirected: u64,
    /// Not matched; passed to the stack.
    pub passed: u64,
    /// Matched, but the queue has no socket; passed to the stack.
    pub map_missed: u64,
    /// Redirected frames that came without the tag of [`ProbeFilterSpec::vlan_tag`].
    pub untagged: u64,
}

/// XDP program that redirects matching frames to the AF_XDP socket of their queue and passes the
/// others to the stack.
///
/// Detach (or drop) it before the sockets are closed: frames that arrive in between are lost.
#[derive(Debug)]
pub struct SocketFilter {
    program: XdpProgram,
    sockets: MapHandle,
    counts: MapHandle,
    /// `None` in front of the probe's sockets.
    tunnels: Option<MapHandle>,
    /// Redirected datagrams by group, of a market-data feed's filter.
    by_group: Option<MapHandle>,
    queues: u32,
}

impl SocketFilter {
    /// Loads the program that takes the probe's datagrams; nothing is attached yet.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF and CAP_NET_ADMIN,
    /// [`BpfError::Invalid`] for no queues or addresses, [`BpfError::Load`] otherwise.
    pub fn for_probe(spec: &ProbeFilterSpec<'_>) -> Result<Self, BpfError> {
        let count = spec.addresses.len();
        if count == 0 || count > PROBE_ADDRESSES_MAX {
            let what = format!(
                "the XDP program takes datagrams to 1 to {PROBE_ADDRESSES_MAX} addresses, and this \
                 interface has {count}; change that (ip address), or use another engine"
            );
            return Err(BpfError::Invalid { what });
        }
        let mut addresses = [[0; 4]; PROBE_ADDRESSES_MAX];
        for (into, ip) in addresses.iter_mut().zip(spec.addresses) {
            let words = mapped(*ip).octets();
            for (word, bytes) in into.iter_mut().zip(words.as_chunks::<4>().0) {
                *word = u32::from_ne_bytes(*bytes);
            }
        }
        let config = probe::config {
            addresses,
            udp_port: spec.udp_port,
            address_count: count as u8,
            arp_icmp: spec.arp_icmp.into(),
            vlan_tag: spec.vlan_tag.unwrap_or(0),
            reserved: 0,
        };
        let opened = Opened::open("probe", embedded!("probe"))?.config(&config)?.frags(spec.frags);
        Self::load(opened, spec.queues, false)
    }

    /// Loads the program that takes a forwarder's frames; nothing is attached yet.
    ///
    /// # Errors
    /// As of [`Self::for_probe`].
    pub fn for_tunnel(spec: &TunnelFilterSpec) -> Result<Self, BpfError> {
        let (vxlan_port, all, ids) = match &spec.frames {
            TunnelFrames::All => (0, true, &[][..]),
            TunnelFrames::Tunnels { vxlan_port, ids } => (*vxlan_port, false, &ids[..]),
        };
        let config = tunnel::config { vxlan_port, all: all.into(), reserved: 0 };
        let opened = Opened::open("tunnel", embedded!("tunnel"))?.config(&config)?;
        let opened = opened.map_entries("tunnels", if all { 1 } else { TUNNELS_MAX })?;
        let filter = Self::load(opened.frags(spec.frags), spec.queues, true)?;
        filter.set_tunnels(ids)?;
        Ok(filter)
    }

    fn load(opened: Opened, queues: u32, has_tunnels: bool) -> Result<Self, BpfError> {
        if queues == 0 {
            return Err(BpfError::Invalid { what: "a filter needs at least 1 queue".into() });
        }
        let loaded = opened.map_entries("sockets", queues)?.load()?;
        // libbpf keeps it: a thread that reads the counters may open no file.
        let _ = libbpf_rs::num_possible_cpus();
        Ok(SocketFilter {
            sockets: loaded.handle("sockets")?,
            counts: loaded.handle("counts")?,
            tunnels: has_tunnels.then(|| loaded.handle("tunnels")).transpose()?,
            by_group: loaded.handle("by_group").ok(),
            queues,
            program: XdpProgram::new(loaded),
        })
    }

    /// Replaces the tunnels whose frames are redirected; those in both lists lose none.
    ///
    /// # Errors
    /// [`BpfError::Map`]: more than 8192 tunnels in both lists together, or, before Linux 5.19, without
    /// CAP_BPF where `kernel.unprivileged_bpf_disabled` is set. [`BpfError::Invalid`] for a filter of the
    /// probe.
    pub fn set_tunnels(&self, ids: &[TunnelId]) -> Result<(), BpfError> {
        let Some(map) = &self.tunnels else {
            return Err(BpfError::Invalid { what: "the probe's filter has no tunnels".into() });
        };
        let wanted: BTreeSet<_> = ids.iter().map(|id| id.to_bytes()).collect();
        for key in &wanted {
            map.update(key, &1_u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|why| map_error("tunnels", "written", why))?;
        }
        let known: Vec<_> = map.keys().collect();
        for key in known.iter().filter(|key| !wanted.iter().any(|id| id[..] == key[..])) {
            map.delete(key).map_err(|why| map_error("tunnels", "written", why))?;
        }
        Ok(())
    }

    /// Attaches the program to an interface until [`Self::detach`], drop or the end of the process.
    /// Call it on a thread in the interface's network namespace.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), BpfError> {
        self.program.attach(ifindex, mode)
    }

    /// Detaches the program, if it is attached.
    pub fn detach(&mut self) {
        self.program.detach();
    }

    /// Assigns a bound AF_XDP socket to a queue, replacing any other.
    ///
    /// # Errors
    /// [`BpfError::NoQueue`]; [`BpfError::Map`] if it is no AF_XDP socket.
    pub fn insert_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), BpfError> {
        if queue >= self.queues {
            return Err(BpfError::NoQueue { queue, queues: self.queues });
        }
        let value = socket.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(|why| map_error("sockets", "written", why))
    }

    /// Counters since loading.
    ///
    /// # Errors
    /// [`BpfError::Map`].
    pub fn counts(&self) -> Result<FilterCounts, BpfError> {
        let mut sum = FilterCounts::default();
        // Both programs have the map of bpf/sockets.h.
        for cpu in per_cpu::<probe::counts>(&self.counts, 0)? {
            sum.redirected += cpu.redirected;
            sum.passed += cpu.passed;
            sum.map_missed += cpu.map_missed;
            sum.untagged += cpu.untagged;
        }
        Ok(sum)
    }
}
