//! What is forwarded: the frames of one pool, received on one interface and sent on another.
//!
//! With AF_XDP they are sent from where they lie; AF_PACKET and TAP copy them into the pool and
//! out of it, and everything in between is the same.
//!
//! No [`Engine`](crate::Engine): those move payloads of one conversation; here whole frames
//! pass through, and receiving and sending are two halves that two workers may have.

mod copying;

use std::os::fd::{AsFd, BorrowedFd};

use sys::bpf::{SocketFilter, TunnelFilterSpec};
use sys::xsk::{self, Bind};

use crate::engine::{Copying, XdpMode};
use crate::error::IoError;

pub use copying::{open_packet_port, open_tap_port};
pub use sys::bpf::{FilterCounts, TunnelFrames};
pub use sys::xsk::{Pool, PoolBalance, PoolRx, PoolTx, Taken, XskError, XskStatistics};

use copying::{PacketReceiver, PacketSender, TapReceiver, TapSender};

/// Entries of the RX and TX rings: more than anybody gives frames to receive into.
const RING_ENTRIES: u32 = 8192;
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
    /// in between are lost. AF_XDP only.
    pub filter: Option<PortFilter>,
    /// What receives.
    pub rx: PortRx<'p>,
    /// What sends.
    pub tx: PortTx<'p>,
}

/// The receiving half of a port.
#[derive(Debug)]
pub struct PortRx<'p>(Receiver<'p>);

/// The sending half of a port.
#[derive(Debug)]
pub struct PortTx<'p>(Sender<'p>);

// Chosen once a call, which is a batch or nearly one.
#[derive(Debug)]
enum Receiver<'p> {
    Xsk(Box<PoolRx<'p>>),
    Packet(PacketReceiver<'p>),
    Tap(TapReceiver<'p>),
}

#[derive(Debug)]
enum Sender<'p> {
    Xsk(Box<PoolTx<'p>>),
    Packet(PacketSender<'p>),
    Tap(TapSender<'p>),
}

impl<'p> PortRx<'p> {
    /// Frames that the kernel lacks to receive into; none where it brings its own.
    pub fn rx_missing(&mut self) -> usize {
        match &mut self.0 {
            Receiver::Xsk(rx) => rx.rx_missing(),
            Receiver::Packet(_) | Receiver::Tap(_) => 0,
        }
    }

    /// Gives the kernel frames to receive into; those that do not fit go back to the pool.
    pub fn rx_post(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        match &mut self.0 {
            Receiver::Xsk(rx) => rx.rx_post(frames),
            Receiver::Packet(_) | Receiver::Tap(_) => {
                frames.clear();
                0
            }
        }
    }

    /// Takes up to `max` frames that have arrived; `each` gets every frame with the place of
    /// its bytes: offset and length.
    pub fn rx_take(&mut self, max: usize, each: impl FnMut(Taken<'p>, usize, usize)) -> usize {
        match &mut self.0 {
            Receiver::Xsk(rx) => rx.rx_take(max, each),
            Receiver::Packet(rx) => rx.take(max, each),
            Receiver::Tap(rx) => rx.take(max, each),
        }
    }

    /// The AF_XDP socket, if it is one: other ports of the pool are opened with it.
    pub fn xsk(&self) -> Option<&PoolRx<'p>> {
        match &self.0 {
            Receiver::Xsk(rx) => Some(rx),
            Receiver::Packet(_) | Receiver::Tap(_) => None,
        }
    }

    /// Whether the driver moves frames in and out of the pool without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.xsk().is_some_and(PoolRx::is_zero_copy)
    }
}

impl AsFd for PortRx<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Receiver::Xsk(rx) => rx.as_fd(),
            Receiver::Packet(rx) => rx.as_fd(),
            Receiver::Tap(rx) => rx.as_fd(),
        }
    }
}

impl<'p> PortTx<'p> {
    /// Frames that can be sent now; looks anew only when fewer than `want` are known.
    pub fn tx_room(&mut self, want: usize) -> usize {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_room(want),
            Sender::Packet(tx) => tx.room(),
            Sender::Tap(_) => usize::MAX,
        }
    }

    /// Hands a frame over, to be seen with [`Self::tx_publish`]. Gives it back when there is no
    /// room.
    pub fn tx_post(
        &mut self,
        frame: Taken<'p>,
        offset: usize,
        len: usize,
    ) -> Result<(), Taken<'p>> {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_post(frame, offset, len),
            Sender::Packet(tx) => tx.post(frame, offset, len),
            Sender::Tap(tx) => tx.post(frame, offset, len),
        }
    }

    /// Lets the kernel see what was posted.
    pub fn tx_publish(&mut self) {
        if let Sender::Xsk(tx) = &mut self.0 {
            tx.tx_publish();
        }
    }

    /// Takes back frames that have been sent.
    pub fn tx_reap(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_reap(frames),
            Sender::Packet(tx) => tx.reap(frames),
            Sender::Tap(tx) => tx.reap(frames),
        }
    }

    /// Frames posted that the kernel has not taken yet.
    pub fn tx_pending(&mut self) -> usize {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_pending(),
            Sender::Packet(tx) => tx.pending(),
            Sender::Tap(_) => 0,
        }
    }

    /// Wakes the kernel to send, where it wants to be woken. Returns whether it could go on at
    /// once.
    ///
    /// Errors: the interface is down or gone.
    pub fn kick(&mut self) -> Result<bool, IoError> {
        match &mut self.0 {
            Sender::Xsk(tx) => Ok(tx.kick()?),
            Sender::Packet(tx) => tx.kick(),
            Sender::Tap(_) => Ok(true),
        }
    }
}

/// What the kernel counts of an AF_XDP socket, by a descriptor of it; `None` for others.
pub fn xsk_statistics(socket: BorrowedFd<'_>) -> Option<XskStatistics> {
    sys::xsk::statistics(socket).ok()
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

/// Opens a port of AF_XDP, stocks it with frames of the pool, and directs frames to it.
///
/// - `first`: the receiving half of the pool's first port; none to be that.
pub fn open_port<'p>(
    pool: &'p Pool,
    spec: &PortSpec,
    first: Option<&PortRx<'p>>,
) -> Result<Port<'p>, IoError> {
    let filter_spec = TunnelFilterSpec {
        frames: spec.frames,
        frags: pool.spans_chunks(),
        queues: spec.queues.max(1),
    };
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
        multi_buffer: pool.spans_chunks(),
        ring_entries: RING_ENTRIES,
        fill_target: spec.fill_target,
        tx_budget: RING_ENTRIES,
    };
    let (mut rx, tx) = xsk::open_port(pool, bind, first.and_then(PortRx::xsk))?;
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
    Ok(Port {
        filter: Some(PortFilter(filter)),
        rx: PortRx(Receiver::Xsk(Box::new(rx))),
        tx: PortTx(Sender::Xsk(Box::new(tx))),
    })
}
