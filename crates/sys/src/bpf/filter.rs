//! XDP filter in front of AF_XDP sockets.

mod feed;

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use xdp::MetadataKey;

use super::XdpMode;
use super::error::BpfError;
use super::link::XdpProgram;
use super::map::Map;
use super::object::{Opened, embedded, map_error, per_cpu, shared_types};

pub use feed::{FEED_GROUPS_MAX, FEED_STAMP_BYTES, FeedGroup};

mod probe {
    super::shared_types!("probe");
}

/// Most destination addresses of a [`ProbeFilterSpec`].
///
/// Source: ADDRESSES_MAX, bpf/probe.h.
pub const PROBE_ADDRESSES_MAX: usize = 16;

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

/// Metadata that the probe's [`SocketFilter`] writes in front of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameMetadata {
    /// A stamp of the kernel's clock, CLOCK_TAI (Linux 6.1).
    Stamp(MetadataKey),
    /// Offers of the driver of this interface (Linux 6.3); the program runs there alone, in native mode.
    Hints(MetadataKey, u32),
}

/// Form in which the programs compare addresses: IPv4 as ::ffff:a.b.c.d.
pub fn mapped_address(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

impl FrameMetadata {
    /// Key that the program writes.
    pub fn key(self) -> MetadataKey {
        match self {
            FrameMetadata::Stamp(key) | FrameMetadata::Hints(key, _) => key,
        }
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
        SocketFilter::for_probe_with(spec, None)
    }

    /// As [`Self::for_probe`], with metadata in front of each frame.
    ///
    /// # Errors
    /// As of [`Self::for_probe`]; [`BpfError::Load`] before the kernel that has the metadata, too.
    pub fn for_probe_with(
        spec: &ProbeFilterSpec<'_>,
        metadata: Option<FrameMetadata>,
    ) -> Result<Self, BpfError> {
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
            let words = mapped_address(*ip).octets();
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
            metadata_key: metadata.map_or(0, |metadata| metadata.key().word()),
        };
        let Some(FrameMetadata::Hints(_, ifindex)) = metadata else {
            let opened =
                Opened::open("probe", embedded!("probe"))?.config(&config)?.frags(spec.frags);
            return Self::load(opened, spec.queues);
        };
        // The same struct, in another object.
        let opened = Opened::open("probe_hinted", embedded!("probe_hinted"))?.config(&config)?;
        let opened = opened.needs_kernel("Linux 6.3 or newer (metadata of XDP frames)");
        Self::load(opened.frags(spec.frags).bound_to(ifindex), spec.queues)
    }

    /// Loads a program that takes all frames; nothing is attached yet.
    ///
    /// - `queues`: receive queues of the interface, at least 1.
    ///
    /// # Errors
    /// As of [`Self::for_probe`].
    pub fn for_all(queues: u32) -> Result<Self, BpfError> {
        Self::load(Opened::open("all", embedded!("all"))?, queues)
    }

    /// Loads a program that has the maps of `bpf/sockets.h` and the name of its object; nothing is attached yet.
    ///
    /// - `queues`: receive queues of the interface, at least 1.
    ///
    /// # Errors
    /// As of [`Self::for_probe`].
    pub fn load(opened: Opened, queues: u32) -> Result<Self, BpfError> {
        if queues == 0 {
            return Err(BpfError::Invalid { what: "a filter needs at least 1 queue".into() });
        }
        let loaded = opened.map_entries("sockets", queues)?.load()?;
        // libbpf keeps it: a thread that reads the counters may open no file.
        let _ = libbpf_rs::num_possible_cpus();
        Ok(SocketFilter {
            sockets: loaded.handle("sockets")?,
            counts: loaded.handle("counts")?,
            by_group: loaded.handle("by_group").ok(),
            queues,
            program: XdpProgram::new(loaded),
        })
    }

    /// One of the program's maps.
    ///
    /// # Errors
    /// [`BpfError::Map`] if it has no such map.
    pub fn map(&self, name: &'static str) -> Result<Map, BpfError> {
        self.program.map(name)
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
        // All programs have the map of bpf/sockets.h.
        for cpu in per_cpu::<probe::counts>(&self.counts, 0)? {
            sum.redirected += cpu.redirected;
            sum.passed += cpu.passed;
            sum.map_missed += cpu.map_missed;
            sum.untagged += cpu.untagged;
        }
        Ok(sum)
    }
}
