//! Packet I/O engines behind one trait: UDP sockets, TPACKET_V3 rings, AF_XDP.
//!
//! An engine moves UDP payloads and hides its system calls, rings and frames behind the same four
//! verbs: `rx_post` and `rx_take`, `tx_post` and `tx_reap`. Loops are generic over the engine, so
//! that a verb costs no indirect call.

mod engine;
mod error;
mod frames;
mod group_xdp;
pub mod multicast;
mod open;
mod packet;
mod redirect;
mod socket_error;
mod udp;
mod xdp;
mod xdp_frames;
mod xdp_memory;
mod xdp_queues;
mod xdp_stamps;

pub use self::xdp::XdpEngine;
pub use engine::{
    Arrival, Copying, Echoed, Engine, EngineKind, EngineReport, EngineSpec, FrameMemory, Local,
    RING_ENTRIES, RING_ENTRIES_MAX, Receiving, Remote, Role, Setup, Stamps, UNALIGNED_FRAME_BYTES,
    Wait, XdpMode,
};
pub use error::IoError;
pub use frames::Template;
pub use group_xdp::{GroupPort, XdpGroups};
pub use open::{AnyEngine, open, open_halves};
pub use packet::PacketEngine;
pub use socket_error::SocketError;
pub use udp::{EpollEngine, UdpEngine, UringEngine};
#[cfg(target_arch = "x86_64")]
pub use xdp_frames::{GuestFrames, open_guest_frames};
pub use xdp_frames::{XDP_FRAME_BYTES_MAX, XdpFrameRx, XdpFrameTx, open_xdp_frames};
pub use xdp_queues::XdpQueues;
