//! Programs that forward between a port and tunnels at XDP or tcx, and the maps through which the slow
//! path controls them.

mod control;
mod keys;
mod tables;

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use sys::bpf::{BpfError, BpfLink, Loaded, Map, Opened, Tcx, TraceLink, XdpMode, embedded};
use sys::mmap::SharedWords;
use sys::netns;
use zerocopy::FromZeros;

use control::WIDE_BYTES;

pub use keys::{fast_station_fields, fast_station_key};

mod types {
    sys::bpf::shared_types!("fastpath");
}

/// Maximum number of tunnels that the programs serve; others take the slow path.
pub const FAST_TUNNELS_MAX: usize = 1024;
/// Bytes of a header's template.
pub const FAST_HEADER_BYTES_MAX: usize = 56;
/// Programs of either object, in the order of [`FastDirection`].
const PROGRAMS: [&str; 2] = ["into", "out_of"];
/// Programs at a TAP device of the slow path.
const RETURNED: &str = "returned";
const GUARDED: &str = "guarded";
const SOCKETS: [&str; 2] = ["port_sockets", "underlay_sockets"];

/// Names of the counters, in the order of `enum count` of the program.
pub const FAST_COUNTS: [&str; 25] = [
    "fast_into_tunnels",
    "fast_out_of_tunnels",
    "slow_into_tunnels",
    "slow_out_of_tunnels",
    "fast_to_stack",
    "policed",
    "congestion",
    "odd_ecn",
    "seam_dropped",
    "seam_forced",
    "into_tunnels_refused",
    "out_of_tunnels_refused",
    "slow_off",
    "slow_group",
    "slow_unknown_source",
    "slow_unknown_destination",
    "slow_waiting",
    "slow_shape",
    "slow_size",
    "slow_nested",
    "slow_checksum",
    "slow_tunnel",
    "fast_super_into_tunnels",
    "fast_super_out_of_tunnels",
    "unwritable",
];

const _: () = assert!(size_of::<types::counts>() == size_of::<[u64; FAST_COUNTS.len()]>());

/// Direction of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastDirection {
    /// At the port.
    Into,
    /// At the interface of the tunnels.
    OutOf,
}

/// Hook of the programs, and their way to the slow path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastHook {
    /// XDP, and AF_XDP sockets.
    Xdp {
        /// Receive queues of both interfaces, at least 1.
        queues: [u32; 2],
        /// Accept frames of more than one buffer, which the slow path forwards.
        frags: bool,
    },
    /// tcx (Linux 6.6), and a TAP device without offloads by direction: what is read from it came from the
    /// interface, and what is written to it leaves by the interface.
    Tcx {
        /// Indexes of the devices.
        taps: [u32; 2],
        /// Super-frames out of tunnels are not left to the slow path. They keep the kernel's mark of a
        /// tunnel, which a veth's other end does not read; a TAP device would drop them.
        opens_super: bool,
    },
}

/// Constants of the programs.
#[derive(Debug, Clone, Copy)]
pub struct FastPathSpec<'a> {
    /// Interfaces of the port and of the tunnels, in the calling thread's network namespace.
    pub ifindexes: [u32; 2],
    /// Hook of both programs.
    pub hook: FastHook,
    /// Stations at most; others take the slow path.
    pub station_count_max: u32,
    /// Longest frame that may leave a tunnel.
    pub inner_bytes_max: u32,
    /// Local UDP port of VXLAN.
    pub vxlan_port: u16,
    /// Result of decapsulation by outer mark << 2 | inner mark: the mark, [`FAST_ECN_DROP`],
    /// [`FAST_ECN_ODD`].
    pub ecn: [u8; 16],
    /// By direction: senders may leave checksums to a device that is not there. Frames that look so take the
    /// slow path. At tcx the kernel knows them, and finishes them.
    pub is_unfinished: [bool; 2],
    /// Tables of CRC-32C, as of `wire::flow`.
    pub crc: &'a [[u32; 256]; 8],
}

/// Flag of [`FastPathSpec::ecn`]: drop the packet.
pub const FAST_ECN_DROP: u8 = 0x80;
/// Flag of [`FastPathSpec::ecn`]: a combination that correct senders never produce.
pub const FAST_ECN_ODD: u8 = 0x40;

/// Outer headers of a tunnel over IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastHeader {
    /// Source and destination address, as in the packet.
    pub ends: [u8; 8],
    /// Class of service, time to live << 8, "don't fragment" << 16.
    pub fixed: u32,
    /// Mask of the bits taken from the inner packet instead.
    pub inherited: u32,
    /// Sum of the constant part of the IP header.
    pub ip_sum: u16,
    pub inner_bytes_max: u32,
    /// VXLAN only: destination port.
    pub vxlan_port: u16,
    /// Ethernet to VXLAN or GRE; lengths, marks and checksums are not read.
    pub bytes: [u8; FAST_HEADER_BYTES_MAX],
    /// 50 for VXLAN, 38 and 42 for GRE without and with a key.
    pub len_bytes: u32,
}

/// Station of the forwarding table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastStation {
    /// CLOCK_MONOTONIC time of its last frame, accurate to the refresh interval.
    pub seen_ns: u64,
    /// Its tunnel; `None` if it is at the port.
    pub tunnel: Option<u32>,
    pub is_static: bool,
}

/// Rules that apply to all frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FastRules {
    pub ageing_ns: u64,
    /// False if sources are not looked up.
    pub learns: bool,
    /// A tag of the port decides on the network of its frames; else all are of network 0.
    pub has_vlans: bool,
    /// Directions that are forwarded by the programs.
    pub is_on: [bool; 2],
}

/// Loads the programs of XDP, with their targets.
fn load_xdp(
    spec: &FastPathSpec<'_>,
    config: &types::config,
    queues: [u32; 2],
    frags: bool,
) -> Result<Loaded, BpfError> {
    if queues.contains(&0) {
        return Err(BpfError::Invalid { what: "a fast path needs at least 1 queue".into() });
    }
    let mut opened = Opened::open("fastpath", embedded!("fastpath"))?
        .config(config)?
        .xdp_frags(&PROGRAMS, frags)
        .map_entries("stations", spec.station_count_max.max(1))?;
    for (map, queues) in SOCKETS.iter().zip(queues) {
        opened = opened.map_entries(map, queues)?;
    }
    let loaded = opened.load()?;
    let targets = loaded.map("targets")?;
    for (key, ifindex) in (0_u32..).zip(spec.ifindexes) {
        targets.set(&key.to_ne_bytes(), &ifindex.to_ne_bytes()).map_err(|why| match why {
            BpfError::Map { source, .. } => BpfError::NoInterface { ifindex, source },
            other => other,
        })?;
    }
    Ok(loaded)
}

/// Attaches the programs that count frames which a target of XDP refused.
fn watch(loaded: &Loaded, [_, underlay]: [u32; 2]) -> Result<[TraceLink; 2], BpfError> {
    Ok([loaded.attach_trace("redirect_err", underlay)?, loaded.attach_trace("xmit", underlay)?])
}

/// The programs, attached until [`Self::detach`], drop or the end of the process.
///
/// Frames of a new station are left to the slow path until the slow path has finished all frames that
/// it was given ([`Self::given`], [`Self::set_finished`]): then no frame can overtake another.
#[derive(Debug)]
pub struct FastPath {
    // Detached first.
    links: Mutex<Vec<BpfLink>>,
    _watched: Option<[TraceLink; 2]>,
    control: SharedWords,
    headers: Map,
    tunnels: Map,
    segments: Map,
    stations: Map,
    /// By direction; none at tcx.
    sockets: Vec<Map>,
    counts: Map,
    hook: FastHook,
    ifindexes: [u32; 2],
    loaded: Mutex<Loaded>,
}

impl FastPath {
    /// Loads the programs; nothing is attached yet, and both directions are off.
    ///
    /// # Errors
    /// [`BpfError::Permission`] without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON,
    /// [`BpfError::NoInterface`], [`BpfError::Invalid`] for no queues, [`BpfError::Load`] otherwise.
    pub fn load(spec: &FastPathSpec<'_>) -> Result<Self, BpfError> {
        let mut config = types::config::new_zeroed();
        config.net_cookie = netns::cookie().map_err(|source| BpfError::Map {
            map: "config".into(),
            what: "made without the cookie of the namespace",
            source,
        })?;
        [config.port_ifindex, config.underlay_ifindex] = spec.ifindexes;
        config.inner_bytes_max = spec.inner_bytes_max;
        config.vxlan_port = spec.vxlan_port;
        config.ecn = spec.ecn;
        config.crc = *spec.crc;
        let (loaded, sockets, watched) = match spec.hook {
            FastHook::Xdp { queues, frags } => {
                config.unfinished = spec.is_unfinished.map(u8::from);
                let loaded = load_xdp(spec, &config, queues, frags)?;
                let sockets =
                    SOCKETS.iter().map(|map| loaded.map(map)).collect::<Result<_, _>>()?;
                let watched = watch(&loaded, spec.ifindexes)?;
                (loaded, sockets, Some(watched))
            }
            FastHook::Tcx { taps, opens_super } => {
                config.slow_ifindexes = taps;
                config.opens_super = opens_super.into();
                let opened = Opened::open("fasttc", embedded!("fasttc"))?
                    .needs_kernel("Linux 6.6 or newer (programs at tcx)")
                    .config(&config)?
                    .map_entries("stations", spec.station_count_max.max(1))?;
                (opened.load()?, Vec::new(), None)
            }
        };
        let control = loaded.map("control_map")?.words(size_of::<types::control>(), WIDE_BYTES)?;
        Ok(FastPath {
            links: Mutex::default(),
            _watched: watched,
            control,
            headers: loaded.map("headers")?,
            tunnels: loaded.map("tunnels")?,
            segments: loaded.map("segments")?,
            stations: loaded.map("stations")?,
            sockets,
            counts: loaded.map("counts")?,
            hook: spec.hook,
            ifindexes: spec.ifindexes,
            loaded: Mutex::new(loaded),
        })
    }

    /// Assigns a bound AF_XDP socket to a queue of the interface at which `direction` runs.
    ///
    /// # Errors
    /// [`BpfError::NoQueue`], also at tcx; [`BpfError::Map`] if it is no AF_XDP socket.
    pub fn insert_socket(
        &self,
        direction: FastDirection,
        queue: u32,
        socket: BorrowedFd<'_>,
    ) -> Result<(), BpfError> {
        let at = direction as usize;
        let queues = match self.hook {
            FastHook::Xdp { queues, .. } => queues[at],
            FastHook::Tcx { .. } => 0,
        };
        let Some(sockets) = self.sockets.get(at).filter(|_| queue < queues) else {
            return Err(BpfError::NoQueue { queue, queues });
        };
        let value = socket.as_raw_fd().to_ne_bytes();
        sockets.set(&queue.to_ne_bytes(), &value)
    }

    /// Attaches the programs. Call it on a thread in the interfaces' network namespace.
    ///
    /// - `mode`: of XDP.
    ///
    /// # Errors
    /// See [`BpfError`]; each names the interface and the remedy.
    pub fn attach(&self, mode: XdpMode) -> Result<(), BpfError> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let mut links = Vec::new();
        for (name, ifindex) in PROGRAMS.into_iter().zip(self.ifindexes) {
            links.push(match self.hook {
                FastHook::Xdp { .. } => loaded.attach_xdp(name, ifindex, mode)?,
                FastHook::Tcx { .. } => loaded.attach_tcx(name, ifindex, Tcx::Ingress)?,
            });
        }
        if let FastHook::Tcx { taps, .. } = self.hook {
            for tap in taps {
                links.push(loaded.attach_tcx(GUARDED, tap, Tcx::Egress)?);
                links.push(loaded.attach_tcx(RETURNED, tap, Tcx::Ingress)?);
            }
        }
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = links;
        Ok(())
    }

    /// Finds out if kernel and drivers take the programs, which are attached for a moment.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn try_attach(&self, mode: XdpMode) -> Result<(), BpfError> {
        self.attach(mode)?;
        self.detach();
        Ok(())
    }

    /// Detaches the programs, if they are attached.
    pub fn detach(&self) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
