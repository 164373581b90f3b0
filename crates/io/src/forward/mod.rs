//! Forwarding ports: frames of one pool, received on one interface and sent on another.
//!
//! AF_XDP sends frames in place; AF_PACKET and TAP copy them into the pool and out of it. Code
//! between the ports is the same for all.
//!
//! A port is no [`Engine`](crate::Engine): engines move payloads of one flow, ports whole
//! frames, and the receive and send halves may belong to two workers.

mod copying;

use std::os::fd::{AsFd, BorrowedFd};

use sys::bpf::{FastPathSpec, SocketFilter, TunnelFilterSpec};
use sys::xsk::{self, Bind};

use crate::engine::{Copying, XdpMode};
use crate::error::IoError;

pub use copying::{open_packet_port, open_tap_port};
pub use sys::bpf::{
    FAST_COUNTS, FAST_ECN_DROP, FAST_ECN_ODD, FAST_HEADER_BYTES_MAX, FAST_TUNNELS_MAX,
    FastDirection, FastHeader, FastPath, FastRules, FastStation, FilterCounts, TunnelCarrier,
    TunnelFrames, TunnelId, fast_station_key, fast_station_of,
};
pub use sys::xsk::{Pool, PoolBalance, PoolRx, PoolTx, Taken, XskError, XskStatistics};

use copying::{PacketReceiver, PacketSender, TapReceiver, TapSender};

/// Entries of the RX and TX rings: above any fill target.
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
    pub ifname: String,
    pub queue: u32,
    /// How many queues it has.
    pub queues: u32,
    /// Where the XDP program runs.
    pub mode: XdpMode,
    /// Copying; the first port of a pool decides.
    pub copying: Copying,
    /// Frames that the port takes; others go to the stack.
    pub frames: TunnelFrames,
    /// Frames of the pool that the kernel holds to receive into.
    pub fill_target: u32,
}

#[derive(Debug)]
pub struct Port<'p> {
    /// XDP program that redirects frames to the port (AF_XDP only). Drop it before the halves:
    /// frames that arrive in between are lost.
    pub filter: Option<PortFilter>,
    pub rx: PortRx<'p>,
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

    /// Posts frames to receive into; those that do not fit return to the pool.
    pub fn rx_post(&mut self, frames: &mut Vec<Taken<'p>>) -> usize {
        match &mut self.0 {
            Receiver::Xsk(rx) => rx.rx_post(frames),
            Receiver::Packet(_) | Receiver::Tap(_) => {
                frames.clear();
                0
            }
        }
    }

    /// Takes up to `max` arrived frames; `each` gets every frame with the offset and length of its
    /// bytes.
    pub fn rx_take(&mut self, max: usize, each: impl FnMut(Taken<'p>, usize, usize)) -> usize {
        match &mut self.0 {
            Receiver::Xsk(rx) => rx.rx_take(max, each),
            Receiver::Packet(rx) => rx.take(max, each),
            Receiver::Tap(rx) => rx.take(max, each),
        }
    }

    /// AF_XDP half, with which further ports of the pool are opened.
    pub fn xsk(&self) -> Option<&PoolRx<'p>> {
        match &self.0 {
            Receiver::Xsk(rx) => Some(rx),
            Receiver::Packet(_) | Receiver::Tap(_) => None,
        }
    }

    /// True if the driver moves frames in and out of the pool without a copy.
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
    /// Frames that can be sent now; polls the ring only if fewer than `want` are known to fit.
    pub fn tx_room(&mut self, want: usize) -> usize {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_room(want),
            Sender::Packet(tx) => tx.room(),
            Sender::Tap(_) => usize::MAX,
        }
    }

    /// Queues a frame, visible to the kernel after [`Self::tx_publish`].
    ///
    /// Errors: the frame, if there is no room.
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

    /// Makes posted frames visible to the kernel.
    pub fn tx_publish(&mut self) {
        if let Sender::Xsk(tx) = &mut self.0 {
            tx.tx_publish();
        }
    }

    /// Reclaims frames that have been sent.
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

    /// Notifies the kernel, if it needs a notification, that there are frames to send. Returns false
    /// if it must be called again.
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

/// Kernel counters of an AF_XDP socket; `None` for other descriptors.
pub fn xsk_statistics(socket: BorrowedFd<'_>) -> Option<XskStatistics> {
    sys::xsk::statistics(socket).ok()
}

/// XDP program on a port's interface; detached on drop.
#[derive(Debug)]
pub struct PortFilter(SocketFilter);

impl PortFilter {
    pub fn counts(&self) -> Result<FilterCounts, IoError> {
        Ok(self.0.counts()?)
    }

    /// Replaces the tunnels whose frames the port takes; frames of all others go to the stack.
    pub fn set_tunnels(&self, ids: &[TunnelId]) -> Result<(), IoError> {
        Ok(self.0.set_tunnels(ids)?)
    }
}

/// Opens an AF_XDP port, fills its ring from the pool, and attaches the XDP program.
///
/// - `first`: receive half of the pool's first port; `None` for the first.
pub fn open_port<'p>(
    pool: &'p Pool,
    spec: &PortSpec,
    first: Option<&PortRx<'p>>,
) -> Result<Port<'p>, IoError> {
    let filter_spec = TunnelFilterSpec {
        frames: spec.frames.clone(),
        frags: pool.spans_chunks(),
        queues: spec.queues.max(1),
    };
    let mut filter = SocketFilter::for_tunnel(&filter_spec)?;
    let (rx, tx) = open_socket(pool, spec, first)?;
    filter.insert_socket(spec.queue, rx.as_fd())?;
    filter.attach(spec.ifindex, spec.mode)?;
    Ok(Port { filter: Some(PortFilter(filter)), rx, tx })
}

/// Constants of a fast path that do not follow from its ports.
#[derive(Debug, Clone, Copy)]
pub struct FastSpec {
    /// Stations at most; others take the slow path.
    pub station_count_max: u32,
    /// Longest frame that may leave a tunnel.
    pub inner_bytes_max: u32,
    /// Local UDP port of VXLAN.
    pub vxlan_port: u16,
    /// Result of decapsulation by outer mark << 2 | inner mark: the mark, [`FAST_ECN_DROP`],
    /// [`FAST_ECN_ODD`].
    pub ecn: [u8; 16],
}

/// Opens the ports of plain frames and of tunnels as the slow path of XDP programs that forward by
/// themselves. The programs are loaded, and not attached yet ([`FastPath::attach`]).
pub fn open_fast_ports<'p>(
    pool: &'p Pool,
    specs: [&PortSpec; 2],
    fast: &FastSpec,
) -> Result<([Port<'p>; 2], FastPath), IoError> {
    let [port, underlay] = specs;
    let path = FastPath::load(&FastPathSpec {
        ifindexes: specs.map(|spec| spec.ifindex),
        queues: specs.map(|spec| spec.queues.max(1)),
        frags: pool.spans_chunks(),
        station_count_max: fast.station_count_max,
        inner_bytes_max: fast.inner_bytes_max,
        vxlan_port: fast.vxlan_port,
        ecn: fast.ecn,
        crc: wire::flow::crc_tables(),
    })?;
    let (port_rx, port_tx) = open_socket(pool, port, None)?;
    let (underlay_rx, underlay_tx) = open_socket(pool, underlay, Some(&port_rx))?;
    path.insert_socket(FastDirection::Into, port.queue, port_rx.as_fd())?;
    path.insert_socket(FastDirection::OutOf, underlay.queue, underlay_rx.as_fd())?;
    let port = Port { filter: None, rx: port_rx, tx: port_tx };
    let underlay = Port { filter: None, rx: underlay_rx, tx: underlay_tx };
    Ok(([port, underlay], path))
}

/// Opens an AF_XDP socket and fills its ring from the pool.
fn open_socket<'p>(
    pool: &'p Pool,
    spec: &PortSpec,
    first: Option<&PortRx<'p>>,
) -> Result<(PortRx<'p>, PortTx<'p>), IoError> {
    let bind = Bind {
        ifindex: spec.ifindex,
        ifname: spec.ifname.clone(),
        queue: spec.queue,
        queues: spec.queues,
        copying: spec.copying,
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
    Ok((PortRx(Receiver::Xsk(Box::new(rx))), PortTx(Sender::Xsk(Box::new(tx)))))
}
