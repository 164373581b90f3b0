//! Forwarding ports: frames of one pool, received on one interface and sent on another.
//!
//! AF_XDP sends frames in place; AF_PACKET and TAP copy them into the pool and out of it. Code
//! between the ports is the same for all.
//!
//! A port is no [`Engine`](io::Engine): engines move payloads of one flow, ports whole
//! frames, and the receive and send halves may belong to two workers.

mod copying;
mod memory;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use io::{Copying, IoError, XdpMode};
use tunnel_bpf::{FastHook, FastPathSpec, TunnelFilter, TunnelFilterSpec};
use xdp::Bind;

pub use copying::{open_packet_port, open_tap_port};
pub use memory::{MemoryCounts, open_memory_port};
pub use sys::bpf::FilterCounts;
pub use tunnel_bpf::{
    FAST_COUNTS, FAST_ECN_DROP, FAST_ECN_ODD, FAST_HEADER_BYTES_MAX, FAST_TUNNELS_MAX,
    FastDirection, FastHeader, FastPath, FastRules, FastStation, TunnelCarrier, TunnelFrames,
    TunnelId, fast_station_fields, fast_station_key,
};
pub use xdp::{Pool, PoolBalance, PoolRx, PoolTx, Taken, XskError, XskStatistics};

use copying::{PacketReceiver, PacketSender, TapReceiver, TapSender};
use memory::{MemoryReceiver, MemorySender};

/// Entries of the RX and TX rings: above any fill target.
const RING_ENTRIES: u32 = 8192;
/// Frames to receive into of a queue, at least.
const QUEUE_FRAMES_MIN: u32 = 128;
/// Bytes in front of a received frame that the kernel leaves free: room for outer headers.
///
/// Source: XDP_PACKET_HEADROOM, include/uapi/linux/bpf.h.
pub const HEADROOM_BYTES: usize = 256;

/// An interface that frames are forwarded from and to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Interface index in the calling thread's network namespace.
    pub ifindex: u32,
    /// Its name.
    pub ifname: String,
    /// Receive queues; each gets a socket. Frames are sent by that of the first.
    pub queues: u32,
    /// Where the XDP program runs.
    pub mode: XdpMode,
    /// Copying; the first port of a pool decides.
    pub copying: Copying,
    /// Frames that the port takes; others go to the stack.
    pub frames: TunnelFrames,
    /// Frames of the pool that the kernel holds to receive into, over all queues.
    pub fill_target: u32,
}

/// An open interface: both halves, and the program in front of them.
#[derive(Debug)]
pub struct Port<'p> {
    /// XDP program that redirects frames to the port (AF_XDP only). Drop it before the halves:
    /// frames that arrive in between are lost.
    pub filter: Option<PortFilter>,
    /// Receiving half.
    pub rx: PortRx<'p>,
    /// Sending half.
    pub tx: PortTx<'p>,
}

/// The receiving half of a port: all of its queues.
#[derive(Debug)]
pub struct PortRx<'p> {
    queues: Vec<Receiver<'p>>,
    /// Queue that is polled first: it changes, so that none starves the others.
    first: usize,
    /// Frames received, by queue.
    counts: Arc<[AtomicU64]>,
}

/// The sending half of a port.
#[derive(Debug)]
pub struct PortTx<'p>(Sender<'p>);

// Chosen once a call, which is a batch or nearly one.
#[derive(Debug)]
enum Receiver<'p> {
    Xsk(Box<PoolRx<'p>>),
    Packet(Box<PacketReceiver<'p>>),
    Tap(TapReceiver<'p>),
    Memory(Box<MemoryReceiver<'p>>),
}

#[derive(Debug)]
enum Sender<'p> {
    Xsk(Box<PoolTx<'p>>),
    Packet(PacketSender<'p>),
    Tap(TapSender<'p>),
    Memory(MemorySender<'p>),
}

impl<'p> PortRx<'p> {
    fn new(queues: Vec<Receiver<'p>>) -> Self {
        let counts = queues.iter().map(|_| AtomicU64::new(0)).collect();
        PortRx { queues, first: 0, counts }
    }

    /// Posts frames of the pool to receive into, to each queue that lacks at least `missing_min`.
    ///
    /// - `spare`: empty; at most its capacity is posted to a queue.
    pub fn rx_post(&mut self, pool: &'p Pool, spare: &mut Vec<Taken<'p>>, missing_min: usize) {
        for queue in &mut self.queues {
            // The others bring buffers of their own.
            let Receiver::Xsk(rx) = queue else { continue };
            let missing = rx.rx_missing();
            if missing >= missing_min.max(1) {
                pool.take(spare, missing.min(spare.capacity()));
                rx.rx_post(spare);
            }
        }
    }

    /// Takes up to `max` arrived frames; `each` gets every frame with the offset and length of its
    /// bytes. Frames of one queue come in their order.
    pub fn rx_take(&mut self, max: usize, mut each: impl FnMut(Taken<'p>, usize, usize)) -> usize {
        let count = self.queues.len();
        let mut taken = 0;
        for at in (self.first..count).chain(0..self.first) {
            let left = max - taken;
            let got = match &mut self.queues[at] {
                Receiver::Xsk(rx) => rx.rx_take(left, &mut each),
                Receiver::Packet(rx) => rx.take(left, &mut each),
                Receiver::Tap(rx) => rx.take(left, &mut each),
                Receiver::Memory(rx) => rx.take(left, &mut each),
            };
            // The only writer: the half is borrowed for writing.
            let before = self.counts[at].load(Ordering::Relaxed);
            self.counts[at].store(before + got as u64, Ordering::Relaxed);
            taken += got;
            if taken >= max {
                break;
            }
        }
        self.first = (self.first + 1) % count.max(1);
        taken
    }

    /// Frames received, by queue.
    pub fn queue_counts(&self) -> Arc<[AtomicU64]> {
        self.counts.clone()
    }

    /// AF_XDP half of the first queue, with which further sockets of the pool are opened.
    pub fn xsk(&self) -> Option<&PoolRx<'p>> {
        match self.queues.first() {
            Some(Receiver::Xsk(rx)) => Some(rx),
            _ => None,
        }
    }

    /// True if the driver moves frames in and out of the pool without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.xsk().is_some_and(PoolRx::is_zero_copy)
    }

    /// Sockets of all queues, to wait for; memory has none.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.queues.iter().filter_map(|queue| match queue {
            Receiver::Xsk(rx) => Some(rx.as_fd()),
            Receiver::Packet(rx) => Some(rx.as_fd()),
            Receiver::Tap(rx) => Some(rx.as_fd()),
            Receiver::Memory(_) => None,
        })
    }
}

impl<'p> PortTx<'p> {
    /// Frames that can be sent now; polls the ring only if fewer than `want` are known to fit.
    pub fn tx_room(&mut self, want: usize) -> usize {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_room(want),
            Sender::Packet(tx) => tx.room(),
            Sender::Tap(_) | Sender::Memory(_) => usize::MAX,
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
            Sender::Memory(tx) => {
                tx.post(frame, offset, len);
                Ok(())
            }
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
            Sender::Memory(tx) => tx.reap(frames),
        }
    }

    /// Frames posted that the kernel has not taken yet.
    pub fn tx_pending(&mut self) -> usize {
        match &mut self.0 {
            Sender::Xsk(tx) => tx.tx_pending(),
            Sender::Packet(tx) => tx.pending(),
            Sender::Tap(_) | Sender::Memory(_) => 0,
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
            Sender::Tap(_) | Sender::Memory(_) => Ok(true),
        }
    }
}

/// Kernel counters of a port's AF_XDP sockets, added up; `None` for other descriptors.
pub fn xsk_statistics<'s>(
    sockets: impl IntoIterator<Item = BorrowedFd<'s>>,
) -> Option<XskStatistics> {
    let mut sum = XskStatistics::default();
    for socket in sockets {
        let one = xdp::statistics(socket).ok()?;
        sum.rx_dropped_count += one.rx_dropped_count;
        sum.rx_invalid_descriptor_count += one.rx_invalid_descriptor_count;
        sum.tx_invalid_descriptor_count += one.tx_invalid_descriptor_count;
        sum.rx_ring_full_count += one.rx_ring_full_count;
        sum.fill_ring_empty_count += one.fill_ring_empty_count;
        sum.tx_ring_empty_count += one.tx_ring_empty_count;
    }
    Some(sum)
}

/// Frames that a port's packet sockets have dropped for lack of room since the last call; 0 for other
/// descriptors.
pub fn take_packet_drop_count<'s>(sockets: impl IntoIterator<Item = BorrowedFd<'s>>) -> u64 {
    sockets.into_iter().map(|socket| sys::packet::take_drop_count(socket).unwrap_or(0)).sum()
}

/// XDP program on a port's interface; detached on drop.
#[derive(Debug)]
pub struct PortFilter(TunnelFilter);

impl PortFilter {
    /// Counters since loading, over all CPUs.
    pub fn counts(&self) -> Result<FilterCounts, IoError> {
        Ok(self.0.sockets.counts()?)
    }

    /// Replaces the tunnels whose frames the port takes; frames of all others go to the stack.
    pub fn set_tunnels(&self, ids: &[TunnelId]) -> Result<(), IoError> {
        Ok(self.0.set_tunnels(ids)?)
    }
}

/// Opens an AF_XDP port, fills its rings from the pool, and attaches the XDP program.
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
    let mut filter = TunnelFilter::load(&filter_spec)?;
    let (rx, tx) = open_sockets(pool, spec, first)?;
    for (queue, socket) in (0..).zip(rx.sockets()) {
        filter.sockets.insert_socket(queue, socket)?;
    }
    filter.sockets.attach(spec.ifindex, spec.mode)?;
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
    /// Of port and underlay: see [`FastPathSpec::is_unfinished`].
    pub is_unfinished: [bool; 2],
}

/// Opens the ports of plain frames and of tunnels as the slow path of XDP programs that forward by
/// themselves. The programs are loaded, and not attached yet ([`FastPath::attach`]).
pub fn open_fast_ports<'p>(
    pool: &'p Pool,
    specs: [&PortSpec; 2],
    fast: &FastSpec,
) -> Result<([Port<'p>; 2], FastPath), IoError> {
    let [port, underlay] = specs;
    let queues = specs.map(|spec| spec.queues.max(1));
    let hook = FastHook::Xdp { queues, frags: pool.spans_chunks() };
    let path = load(specs.map(|spec| spec.ifindex), hook, fast)?;
    let (port_rx, port_tx) = open_sockets(pool, port, None)?;
    let (underlay_rx, underlay_tx) = open_sockets(pool, underlay, Some(&port_rx))?;
    for (direction, rx) in [(FastDirection::Into, &port_rx), (FastDirection::OutOf, &underlay_rx)] {
        for (queue, socket) in (0..).zip(rx.sockets()) {
            path.insert_socket(direction, queue, socket)?;
        }
    }
    let port = Port { filter: None, rx: port_rx, tx: port_tx };
    let underlay = Port { filter: None, rx: underlay_rx, tx: underlay_tx };
    Ok(([port, underlay], path))
}

/// Loads tcx programs that forward by themselves; their slow path is a pair of TAP ports
/// ([`open_tap_port`]). They are not attached yet ([`FastPath::attach`]).
///
/// - `ifindexes`: of the port and of the tunnels' interface.
/// - `taps`: the device of each, up, and with its MTU.
/// - `opens_super`: see [`FastHook::Tcx`].
pub fn load_tcx(
    ifindexes: [u32; 2],
    taps: [u32; 2],
    opens_super: bool,
    fast: &FastSpec,
) -> Result<FastPath, IoError> {
    load(ifindexes, FastHook::Tcx { taps, opens_super }, fast)
}

fn load(ifindexes: [u32; 2], hook: FastHook, fast: &FastSpec) -> Result<FastPath, IoError> {
    Ok(FastPath::load(&FastPathSpec {
        ifindexes,
        hook,
        station_count_max: fast.station_count_max,
        inner_bytes_max: fast.inner_bytes_max,
        vxlan_port: fast.vxlan_port,
        ecn: fast.ecn,
        is_unfinished: fast.is_unfinished,
        crc: wire::flow::crc_tables(),
    })?)
}

/// Opens an AF_XDP socket for each receive queue and fills the rings from the pool.
fn open_sockets<'p>(
    pool: &'p Pool,
    spec: &PortSpec,
    first: Option<&PortRx<'p>>,
) -> Result<(PortRx<'p>, PortTx<'p>), IoError> {
    let (rx, tx) = open_socket(pool, spec, 0, first.and_then(PortRx::xsk))?;
    let mut queues = vec![rx];
    for queue in 1..spec.queues {
        // Sends nothing: frames of one flow leave by one queue, in the order of all.
        let (rx, _tx) = open_socket(pool, spec, queue, queues.first())?;
        queues.push(rx);
    }
    let queues = queues.into_iter().map(|rx| Receiver::Xsk(Box::new(rx))).collect();
    let mut rx = PortRx::new(queues);
    // Frames before traffic: an arrival that finds the fill ring empty is lost.
    rx.rx_post(pool, &mut Vec::with_capacity(RING_ENTRIES as usize), 1);
    Ok((rx, PortTx(Sender::Xsk(Box::new(tx)))))
}

fn open_socket<'p>(
    pool: &'p Pool,
    spec: &PortSpec,
    queue: u32,
    first: Option<&PoolRx<'p>>,
) -> Result<(PoolRx<'p>, PoolTx<'p>), IoError> {
    let queues = spec.queues.max(1);
    let bind = Bind {
        ifindex: spec.ifindex,
        ifname: spec.ifname.clone(),
        queue,
        queues,
        copying: spec.copying,
        need_wakeup: true,
        multi_buffer: pool.spans_chunks(),
        ring_entries: RING_ENTRIES,
        fill_target: (spec.fill_target / queues).max(QUEUE_FRAMES_MIN),
        tx_budget: RING_ENTRIES,
    };
    Ok(xdp::open_port(pool, bind, first)?)
}
