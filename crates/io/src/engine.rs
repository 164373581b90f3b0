//! The trait of all engines, and what they are opened with.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::{IoError, PacketEngine, UdpEngine, XdpEngine};

/// Which kernel interface moves the packets.
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

/// What a receiver does while nothing arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Sleep in the kernel.
    Block,
    /// Look again at once.
    Spin,
}

/// Where the XDP program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// In the stack, behind the driver (generic).
    Skb,
    /// In the driver.
    Native,
}

/// Whose receive time stamps arrivals carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    /// None.
    Off,
    /// The kernel's, taken when the driver hands the packet over; CLOCK_REALTIME.
    Software,
    /// The NIC's own clock's; comparable with ours only where it is synchronised (phc2sys).
    Hardware,
}

/// Whether frames are copied between the driver and the UMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copying {
    /// Always.
    Copy,
    /// Not where the driver can do without.
    PreferZeroCopy,
    /// Never: fail instead.
    RequireZeroCopy,
}

/// Everything that distinguishes one engine from another. Read once, when it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineSpec {
    /// Kernel interface.
    pub kind: EngineKind,
    /// Waiting.
    pub wait: Wait,
    /// Datagrams a system call or a look at a ring; 1 for one at a time.
    pub batch: usize,
    /// Segmentation offload when sending and coalescing when receiving (UDP only).
    pub gso: bool,
    /// Where the XDP program runs.
    pub xdp_mode: XdpMode,
    /// Copying (AF_XDP only).
    pub copying: Copying,
    /// Whether the kernel may sleep until woken (AF_XDP only).
    pub need_wakeup: bool,
    /// Whether the receiver polls the device queue itself (SO_BUSY_POLL).
    pub busy_poll: bool,
    /// Receive buffer of a UDP socket in bytes; `None` for the host's default.
    pub receive_buffer_bytes: Option<usize>,
    /// Frames of a UMEM share (AF_XDP only).
    pub frames: u32,
    /// Frame size of the UMEM in bytes (AF_XDP only).
    pub frame_bytes: u32,
    /// Whether a packet may span frames (AF_XDP only).
    pub multi_buffer: bool,
    /// Whose time stamps arrivals carry.
    pub stamps: Stamps,
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
            receive_buffer_bytes: None,
            frames: 4096,
            frame_bytes: 2048,
            multi_buffer: false,
            stamps: Stamps::Off,
        }
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

/// This end of a conversation, in the calling thread's network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// Interface index.
    pub ifindex: u32,
    /// Interface name.
    pub ifname: String,
    /// Its MTU in bytes.
    pub mtu_bytes: u32,
    /// Receive queue of this engine.
    pub queue: u32,
    /// Receive queues that the interface has.
    pub queues: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// Address.
    pub ip: Ipv4Addr,
    /// UDP port.
    pub port: u16,
}

/// The other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// MAC address of the next hop.
    pub mac: [u8; 6],
    /// Address.
    pub ip: Ipv4Addr,
    /// UDP port.
    pub port: u16,
}

/// What an engine is used for; what it does not need is not set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends only.
    Send,
    /// Receives only.
    Receive,
    /// Returns what it receives to its sender.
    Echo,
    /// Sends and receives the answers.
    Ping,
}

impl Role {
    /// Whether it receives at all.
    pub fn receives(self) -> bool {
        self != Role::Send
    }

    /// Whether it sends at all.
    pub fn sends(self) -> bool {
        self != Role::Receive
    }
}

/// One datagram that arrived.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The payload; only its beginning when the packet spans frames.
    pub payload: &'a mut [u8],
    /// Length of the whole payload in bytes.
    pub payload_bytes: usize,
    /// When the kernel took it, CLOCK_REALTIME nanoseconds, where it was asked to say.
    pub stamp_ns: Option<u64>,
}

/// What one call of [`Engine::echo`] did, in datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Echoed {
    /// Taken from the kernel.
    pub taken: usize,
    /// Sent back.
    pub returned: usize,
}

/// What an engine has to say of itself at its end.
#[derive(Debug, Clone, Default)]
pub struct EngineReport {
    /// The mode really in use: name → value.
    pub mode: Vec<(String, String)>,
    /// Counters: name → value, unit in the name.
    pub counters: Vec<(String, u64)>,
    /// Options that had no effect: switch → evidence.
    pub not_effective: Vec<(String, String)>,
    /// System calls made on the data path.
    pub syscall_count: u64,
    /// Datagrams that were handed over and never left.
    pub unsent_count: u64,
    /// Whether the books of frames balance; `None` for engines without frames of their own.
    pub ledger: Option<sys::xsk::LedgerBalance>,
}

/// Moves UDP payloads of one size between this end and another.
pub trait Engine {
    /// Gives the kernel empty frames to receive into, where that is ours to do.
    fn rx_post(&mut self) {}

    /// Takes what has arrived, at most one batch, and shows each datagram to `each`. Returns
    /// how many. A blocking engine sleeps when nothing is there, at most about 20 ms, so that
    /// its caller can look at a stop flag.
    fn rx_take(&mut self, each: &mut impl FnMut(Arrival<'_>)) -> Result<usize, IoError>;

    /// Hands up to `want` datagrams of `flow` to the kernel; `fill` writes each payload.
    /// Returns how many went; fewer, even none, when the way is full just now. `fill` is
    /// called exactly once per datagram that went or will go with the next call.
    fn tx_post(
        &mut self,
        flow: usize,
        want: usize,
        fill: &mut impl FnMut(&mut [u8]),
    ) -> Result<usize, IoError>;

    /// Sleeps until something arrived, at most `timeout`; for loops that also have to send in
    /// time and so open their engine spinning.
    fn nap(&mut self, timeout: std::time::Duration) -> Result<(), IoError>;

    /// Takes back frames that have been sent; returns how many.
    fn tx_reap(&mut self) -> usize {
        0
    }

    /// Takes what has arrived and returns to its sender what `answer` gives a reply number,
    /// with that number and the kind of an answer in its probe header. Waits as
    /// [`rx_take`](Self::rx_take) does.
    fn echo(
        &mut self,
        answer: &mut impl FnMut(&mut Arrival<'_>) -> Option<u32>,
    ) -> Result<Echoed, IoError>;

    /// Waits for what was handed over to leave, and reports.
    fn finish(&mut self) -> EngineReport;
}

/// Any engine: for code that chooses one at run time, once, before its loop.
#[derive(Debug)]
pub enum AnyEngine {
    /// UDP sockets.
    Udp(Box<UdpEngine>),
    /// TPACKET_V3.
    Packet(Box<PacketEngine>),
    /// AF_XDP.
    Xdp(Box<XdpEngine>),
}

/// What an engine is opened with.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// Which engine, and how it is tuned.
    pub spec: &'a EngineSpec,
    /// What it is for.
    pub role: Role,
    /// This end.
    pub local: &'a Local,
    /// The other end; a receiver or an echo may do without.
    pub remote: Option<&'a Remote>,
    /// Source ports to send from, upwards from the local port; only a sender may have more than
    /// one.
    pub flows: usize,
    /// Size of every datagram sent, and the most received, bytes.
    pub payload_bytes: usize,
}

impl<'a> Setup<'a> {
    /// A receiver.
    pub fn receive(spec: &'a EngineSpec, local: &'a Local, payload_bytes: usize) -> Self {
        Setup { spec, role: Role::Receive, local, remote: None, flows: 1, payload_bytes }
    }
}

/// Opens an engine in the calling thread's network namespace.
pub fn open(setup: &Setup<'_>) -> Result<AnyEngine, IoError> {
    Ok(match setup.spec.kind {
        EngineKind::Udp => AnyEngine::Udp(Box::new(UdpEngine::open(setup)?)),
        EngineKind::Packet => AnyEngine::Packet(Box::new(PacketEngine::open(setup)?)),
        EngineKind::Xdp => {
            let queue = setup.local.queue;
            let mut port = XdpEngine::open_port(setup, queue..queue + 1)?;
            AnyEngine::Xdp(Box::new(port.remove(0)))
        }
    })
}
