//! Packet I/O engines behind one trait: UDP sockets, TPACKET_V3 rings, AF_XDP.
//!
//! An engine moves UDP payloads. Which system calls, rings and frames that takes is its own
//! business; the four verbs are the same everywhere: `rx_post` and `rx_take`, `tx_post` and
//! `tx_reap`. Loops are generic over the engine, so that a verb costs no indirect call.

mod engine;
mod error;
pub mod forward;
mod frames;
pub mod multicast;
mod packet;
pub mod thread;
mod udp;
mod xdp;
mod xdp_frames;

pub use engine::{
    AnyEngine, Arrival, Copying, Echoed, Engine, EngineKind, EngineReport, EngineSpec, Local,
    Remote, Role, Setup, Stamps, Wait, XdpMode, open,
};
pub use error::IoError;
pub use frames::Template;
pub use packet::PacketEngine;
pub use udp::UdpEngine;
pub use xdp::XdpEngine;
pub use xdp_frames::{XDP_FRAME_BYTES_MAX, XdpFrameRx, XdpFrameTx, open_xdp_frames};

/// The kernel's live-frame generator, an XDP program that counts and drops, and their errors.
pub use sys::bpf::{
    BpfError, DelayCounts, DropCounter, DropCounts, DropSpec, Generator, XdpMode as BpfMode,
    detach_leftover,
};
/// Filters of system calls.
#[cfg(target_arch = "x86_64")]
pub use sys::seccomp::Confinement;
/// Clocks, CPU placement, scheduling, rights and CPU time of the calling thread, for loops over
/// engines;
/// terminals for what they print.
pub use sys::{affinity, capability, clock, poll, pty, rusage, sched};
/// TAP interfaces, and rings of whole frames, for devices that bring their own frames.
pub use sys::{packet as frame_ring, tap};
