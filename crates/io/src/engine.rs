//! The trait of all engines and their settings.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use wire::ethernet;
use xdp::mmap::HUGE_PAGE_BYTES;

pub use sys::bpf::XdpMode;
pub use sys::udp::Stamps;
pub use xdp::{Copying, FrameMemory};

use crate::IoError;

/// Kernel interface that moves the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// UDP sockets.
    Udp,
    /// AF_PACKET with TPACKET_V3 rings.
    Packet,
    /// AF_XDP.
    Xdp,
}

/// Behaviour of a receiver while nothing arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    Block,
    Spin,
}

/// Calls by which a UDP socket receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiving {
    /// recv(2) or recvmmsg(2), which wait themselves
    #[default]
    Direct,
    /// epoll_wait(2), then as direct
    Epoll,
    /// As epoll, whose instance polls the device queue itself (Linux 6.9)
    EpollBusyPoll,
    /// A multishot request of io_uring (Linux 6.1)
    IoUring,
}

/// Entries of the RX and TX rings of an AF_XDP socket.
pub const RING_ENTRIES: u32 = 2048;
/// Most entries of such a ring.
pub const RING_ENTRIES_MAX: u32 = 65_536;
/// Size of the smaller unaligned frames: an odd number of cache lines, so that frames side by side begin in
/// different sets of the cache.
pub const UNALIGNED_FRAME_BYTES: u32 = 2112;

/// Settings of an engine, read once when it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineSpec {
    pub kind: EngineKind,
    pub wait: Wait,
    /// Datagrams for each system call or ring poll.
    pub batch: usize,
    /// Segmentation offload when sending and coalescing when receiving (UDP only).
    pub gso: bool,
    /// Where the XDP program runs.
    pub xdp_mode: XdpMode,
    pub copying: Copying,
    /// XDP_USE_NEED_WAKEUP: the kernel sleeps until it is notified (AF_XDP only).
    pub need_wakeup: bool,
    /// The receiver polls the device queue itself (SO_BUSY_POLL).
    pub busy_poll: bool,
    /// Calls that receive (UDP only).
    #[serde(default)]
    pub receiving: Receiving,
    /// Datagrams that are no answers are sent by MSG_ZEROCOPY (UDP only).
    #[serde(default)]
    pub zero_copy_send: bool,
    /// Datagrams may be fragmented on their way (UDP only).
    #[serde(default)]
    pub fragments: bool,
    /// Receive buffer of a UDP socket in bytes; `None` for the host's default.
    pub receive_buffer_bytes: Option<usize>,
    /// Frames of a UMEM share (AF_XDP only).
    pub frames: u32,
    /// Frame size of the UMEM in bytes (AF_XDP only).
    pub frame_bytes: u32,
    /// Packets may span frames (AF_XDP only).
    pub multi_buffer: bool,
    /// The UMEM lies in huge pages, which must be reserved (AF_XDP only).
    #[serde(default)]
    pub huge_pages: bool,
    /// Entries of the RX and TX rings, a power of two; `None` for [`RING_ENTRIES`] (AF_XDP only).
    #[serde(default)]
    pub ring_entries: Option<u32>,
    /// Frames of any multiple of 64 bytes, side by side across pages; not in zero-copy mode (AF_XDP only).
    #[serde(default)]
    pub unaligned_chunks: bool,
    /// Where the role receives, a socket on every receive queue in place of the local end's (AF_XDP
    /// only).
    pub all_queues: bool,
    /// Tag of the frames, 16 bits of priority and VLAN; `None` for none. AF_XDP writes it; frames of the other
    /// kinds get theirs from a VLAN device.
    #[serde(default)]
    pub vlan_tag: Option<u16>,
    /// Whose time stamps arrivals carry.
    pub stamps: Stamps,
    /// Pinned map of AF_XDP sockets of an XDP program that is attached already; `None` for a program of our
    /// own (AF_XDP only). A path of this host: no peer gets it, or takes it from a peer.
    #[serde(skip)]
    pub xsk_map: Option<PathBuf>,
}

impl EngineSpec {
    /// A blocking engine, one datagram at a time: the baseline of its kind.
    pub fn plain(kind: EngineKind) -> Self {
        EngineSpec {
            kind,
            wait: Wait::Block,
            batch: 1,
            gso: false,
            xdp_mode: XdpMode::Skb,
            copying: Copying::Copy,
            need_wakeup: false,
            busy_poll: false,
            receiving: Receiving::Direct,
            zero_copy_send: false,
            fragments: false,
            receive_buffer_bytes: None,
            frames: 4096,
            frame_bytes: 2048,
            multi_buffer: false,
            huge_pages: false,
            ring_entries: None,
            unaligned_chunks: false,
            all_queues: false,
            vlan_tag: None,
            stamps: Stamps::Off,
            xsk_map: None,
        }
    }

    /// VLAN of its datagrams, without the priority.
    pub fn vlan(&self) -> Option<u16> {
        self.vlan_tag.map(|tag| tag & ethernet::VLAN_MASK)
    }

    /// Tag that the engine writes into its frames.
    pub fn frame_tag(&self) -> Option<u16> {
        self.vlan_tag.filter(|_| self.kind == EngineKind::Xdp)
    }

    /// Length of the frame around a payload between addresses of the version of `ip`, in bytes.
    pub fn packet_frame_bytes(&self, ip: IpAddr, payload_bytes: usize) -> usize {
        let tag_bytes = if self.frame_tag().is_some() { ethernet::VLAN_BYTES } else { 0 };
        wire::frame::headers_bytes(ip) + tag_bytes + payload_bytes
    }

    /// True if a receiver at this local end has several sockets.
    pub fn takes_queues(&self, local: &Local) -> bool {
        self.kind == EngineKind::Xdp && self.all_queues && local.queues > 1
    }

    /// Entries of the RX and TX rings.
    pub fn ring_entries(&self) -> u32 {
        self.ring_entries.unwrap_or(RING_ENTRIES)
    }

    /// Memory of the UMEM.
    pub fn frame_memory(&self) -> FrameMemory {
        FrameMemory {
            huge_pages: self.huge_pages,
            unaligned: self.unaligned_chunks,
            ..FrameMemory::default()
        }
    }

    /// Size of a UMEM with this many shares of the frames.
    pub fn umem_bytes(&self, shares: u32) -> u64 {
        u64::from(self.frames) * u64::from(shares) * u64::from(self.frame_bytes)
    }

    /// Huge pages that it lies in.
    pub fn huge_page_count(&self, shares: u32) -> u64 {
        self.umem_bytes(shares).div_ceil(HUGE_PAGE_BYTES as u64)
    }

    /// Datagrams that one send can take.
    pub fn burst(&self) -> usize {
        if self.gso && self.kind == EngineKind::Udp {
            self.batch.max(sys::udp::SEGMENTS_MAX)
        } else {
            self.batch.max(1)
        }
    }
}

/// Local end, in the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    pub ifindex: u32,
    pub ifname: String,
    pub mtu_bytes: u32,
    /// Receive queue of this engine.
    pub queue: u32,
    /// Receive queues that the interface has.
    pub queues: u32,
    pub mac: [u8; 6],
    /// Unspecified for an end that answers at any of `addresses`.
    pub ip: IpAddr,
    /// Addresses of the interface in that IP version, if `ip` is unspecified; empty otherwise.
    pub addresses: Vec<IpAddr>,
    pub port: u16,
}

impl Local {
    /// Addresses that datagrams for this end may be sent to.
    pub fn destinations(&self) -> &[IpAddr] {
        if self.ip.is_unspecified() { &self.addresses } else { std::slice::from_ref(&self.ip) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// MAC address of the next hop.
    pub mac: [u8; 6],
    pub ip: IpAddr,
    pub port: u16,
}

/// Use of an engine; resources that a role does not need are not set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Send,
    Receive,
    /// Returns received datagrams to their sender.
    Echo,
    /// Sends and receives the answers.
    Ping,
}

impl Role {
    pub fn receives(self) -> bool {
        self != Role::Send
    }

    pub fn sends(self) -> bool {
        self != Role::Receive
    }
}

#[derive(Debug)]
pub struct Arrival<'a> {
    /// The payload; only its beginning when the packet spans frames.
    pub payload: &'a mut [u8],
    /// Length of the whole payload in bytes.
    pub payload_bytes: usize,
    /// Receive time stamp, CLOCK_REALTIME nanoseconds; `None` if stamps are off.
    pub stamp_ns: Option<u64>,
}

/// Datagrams of one call of [`Engine::echo`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Echoed {
    pub taken: usize,
    pub returned: usize,
}

/// Final report of an engine.
#[derive(Debug, Clone, Default)]
pub struct EngineReport {
    /// Modes in effect: name → value.
    pub mode: Vec<(String, String)>,
    /// Counters: name → value, unit in the name.
    pub counters: Vec<(String, u64)>,
    /// Options that had no effect: switch → evidence.
    pub not_effective: Vec<(String, String)>,
    /// System calls made on the data path.
    pub syscall_count: u64,
    /// Datagrams posted that never left.
    pub unsent_count: u64,
    /// Frame ledger; `None` for engines without frames of their own.
    pub ledger: Option<xdp::LedgerBalance>,
}

impl EngineReport {
    /// Adds the report of another engine of the same end. Where both name a mode, the first one's stays.
    pub fn merge(&mut self, other: EngineReport) {
        for (name, value) in other.mode {
            if !self.mode.iter().any(|(own, _)| *own == name) {
                self.mode.push((name, value));
            }
        }
        for (name, value) in other.counters {
            match self.counters.iter_mut().find(|(own, _)| *own == name) {
                Some((_, own)) => *own += value,
                None => self.counters.push((name, value)),
            }
        }
        for (switch, why) in other.not_effective {
            if !self.not_effective.iter().any(|(own, _)| *own == switch) {
                self.not_effective.push((switch, why));
            }
        }
        self.syscall_count += other.syscall_count;
        self.unsent_count += other.unsent_count;
        if let Some(more) = other.ledger {
            *self.ledger.get_or_insert_default() += more;
        }
    }
}

/// Moves UDP payloads of one size between this end and another.
pub trait Engine {
    /// Posts empty frames to receive into, for engines that own their frames.
    fn rx_post(&mut self) {}

    /// Takes arrived datagrams, at most one batch, and passes each to `each`. Returns how many. A
    /// blocking engine sleeps when there are none, at most about 20 ms, so that its caller can
    /// check a stop flag.
    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError>;

    /// Posts up to `want` datagrams of `flow`; `fill` writes each payload. Returns how many were
    /// sent: fewer, even none, while the queue is full. `fill` is called exactly once for each
    /// datagram that was sent or will be sent by the next call.
    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError>;

    /// Sleeps until something arrives, at most `timeout`; for loops that must also send on time and
    /// therefore open their engine spinning.
    fn nap(&mut self, timeout: std::time::Duration) -> Result<(), IoError>;

    /// Reclaims frames that have been sent; returns how many.
    fn tx_reap(&mut self) -> usize {
        0
    }

    /// Takes arrived datagrams and returns to the sender those for which `answer` gives a reply
    /// number; the number and the kind of an answer go into the probe header. Waits like
    /// [`rx_take`](Self::rx_take).
    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError>;

    /// Waits until posted datagrams have left, and reports.
    fn finish(&mut self) -> EngineReport;
}

/// Arguments of [`open`](crate::open).
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Which engine, and how it is tuned.
    pub spec: &'a EngineSpec,
    pub role: Role,
    pub local: &'a Local,
    /// Remote end; optional for a receiver and an echo.
    pub remote: Option<&'a Remote>,
    /// Source ports, ascending from the local port; more than one for a sender only.
    pub flows: usize,
    /// Size of every datagram sent, and the most received, bytes.
    pub payload_bytes: usize,
}

impl<'a> Setup<'a> {
    pub fn receive(spec: &'a EngineSpec, local: &'a Local, payload_bytes: usize) -> Self {
        Setup { spec, role: Role::Receive, local, remote: None, flows: 1, payload_bytes }
    }
}
