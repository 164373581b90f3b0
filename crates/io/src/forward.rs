//! AF_XDP for what is forwarded: the frames of one pool, received on one interface and sent
//! from where they lie on another.
//!
//! No [`Engine`](crate::Engine): those move payloads of one conversation; here whole frames
//! pass through, and receiving and sending are two halves that two workers may have.

use std::os::fd::AsFd;

use sys::bpf::{SocketFilter, TunnelFilterSpec};
use sys::xsk::{self, Bind};

use crate::engine::{Copying, XdpMode};
use crate::error::IoError;

pub use sys::bpf::{FilterCounts, TunnelFrames};
pub use sys::xsk::{Pool, PoolBalance, PoolRx, PoolTx, Taken};

/// Entries of the RX and TX rings.
const RING_ENTRIES: u32 = 2048;
/// Bytes in front of a received frame that the kernel leaves free: room for outer headers.
///
/// Source: XDP_PACKET_HEADROOM, include/uapi/linux/bpf.h.
pub const HEADROOM_BYTES: usize = 256;

/// A queue of an interface that frames are forwarded from and to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Interface index in the calling thread's network namespace.
    pub ifindex: u32,
    /// Its name, for messages.
    pub ifname: String,
    /// Which of its queues.
    pub queue: u32,
    /// How many queues it has.
    pub queues: u32,
    /// Where the XDP program runs.
    pub mode: XdpMode,
    /// Copying; the first port of a pool decides.
    pub copying: Copying,
    /// Which frames are taken; the others go to the stack.
    pub frames: TunnelFrames,
    /// Frames of the pool that the kernel holds to receive into.
    pub fill_target: u32,
}

/// An open port.
#[derive(Debug)]
pub struct Port<'p> {
    /// What directs frames here, until it is dropped: before the halves, or frames that arrive
    /// in between are lost.
    pub filter: PortFilter,
    /// What receives.
    pub rx: PoolRx<'p>,
    /// What sends.
    pub tx: PoolTx<'p>,
}

/// The XDP program on a port's interface; taken off when dropped.
#[derive(Debug)]
pub struct PortFilter(SocketFilter);

impl PortFilter {
    /// What it has seen.
    pub fn counts(&self) -> Result<FilterCounts, IoError> {
        Ok(self.0.counts()?)
    }
}

/// Opens a port, stocks it with frames of the pool, and directs frames to it.
///
/// - `first`: the receiving half of the pool's first port; none to be that.
pub fn open_port<'p>(
    pool: &'p Pool,
    spec: &PortSpec,
    first: Option<&PoolRx<'p>>,
) -> Result<Port<'p>, IoError> {
    let filter_spec = TunnelFilterSpec { frames: spec.frames, queues: spec.queues.max(1) };
    let mut filter = SocketFilter::for_tunnel(&filter_spec)?;
    let bind = Bind {
        ifindex: spec.ifindex,
        ifname: spec.ifname.clone(),
        queue: spec.queue,
        queues: spec.queues,
        copying: match spec.copying {
            Copying::Copy => xsk::Copying::Copy,
            Copying::PreferZeroCopy => xsk::Copying::PreferZeroCopy,
            Copying::RequireZeroCopy => xsk::Copying::RequireZeroCopy,
        },
        need_wakeup: true,
        multi_buffer: false,
        ring_entries: RING_ENTRIES,
        fill_target: spec.fill_target,
        tx_budget: RING_ENTRIES,
    };
    let (mut rx, tx) = xsk::open_port(pool, bind, first)?;
    // Frames before traffic: an arrival that finds the fill ring empty is lost.
    let mut frames = Vec::new();
    pool.take(&mut frames, rx.rx_missing());
    rx.rx_post(&mut frames);
    filter.insert_socket(spec.queue, rx.as_fd())?;
    filter.attach(
        spec.ifindex,
        match spec.mode {
            XdpMode::Skb => sys::bpf::XdpMode::Skb,
            XdpMode::Native => sys::bpf::XdpMode::Native,
        },
    )?;
    Ok(Port { filter: PortFilter(filter), rx, tx })
}
