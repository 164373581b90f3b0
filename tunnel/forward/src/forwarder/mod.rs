//! The forwarder: moves plain frames from a port into tunnels and back. Each direction keeps its
//! order with any number of workers.
//!
//! A worker owns only its batch tickets: it calls [`Forwarder::turn`] in a loop and passes the
//! time. Frames stay in place from receipt to transmission.

mod counts;
mod egress;
mod fast;
mod judge;
mod keepalive;
mod path;
mod replies;
mod rules;
mod spec;
mod work;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ports::{
    FastDirection, FastPath, Pool, Port as IoPort, PortFilter, PortRx, Taken, XskStatistics,
};
use io::{IoError, XdpMode};
use sys::poll::FDS_MAX;
use wire::flow;

use super::encap::PacketPlace;
use super::fdb::{Fdb, FdbPort};
use super::order::{
    BatchTicket, Frame, LANE_COUNT_MAX, Order, OrderCounters, OrderSpec, lane_index,
};
use super::pmtu::Limiter;
use super::qos::{Shaper, TokenBucket};

pub use counts::NamedCounts;
pub use fast::ecn_table;
pub use spec::{ForwarderError, ForwarderSpec, PolicerSpec, RulesSpec, Tuning};
pub use work::Work;

use counts::ForwarderCounts;
use egress::Egress;
use fast::{FastTable, Missing};
use keepalive::OwnFrames;
use replies::Reply;
use rules::Rules;

/// Missing frames that trigger a refill of a port's fill ring; fewer are not worth the cache line.
const RESTOCK_FRAMES: usize = 64;
/// Class bit of a frame to flood: it has no outer headers yet and is copied into every tunnel.
const FLOOD: u8 = 0x80;

/// A forwarder between two ports.
#[derive(Debug)]
pub struct Forwarder<'p> {
    // Dropped first, so that no frame is redirected to a closed socket.
    filters: [Option<PortFilter>; 2],
    fast: Option<Arc<FastPath>>,
    /// By direction of the fast path.
    missing: [Missing; 2],
    into_tunnels: Order<Ingress<'p>, Egress<'p>>,
    out_of_tunnels: Order<Ingress<'p>, Egress<'p>>,
    pool: &'p Pool,
    table: Mutex<Table>,
    /// Increases when the table has new rules.
    reload_count: AtomicU64,
    lanes: Lanes,
    tuning: Tuning,
    /// See [`ForwarderSpec::is_unfinished`].
    is_unfinished: [bool; 2],
    /// Receive sockets of all queues: port, underlay.
    sockets: [Vec<OwnedFd>; 2],
    /// Frames received by queue: port, underlay.
    queue_counts: [Arc<[AtomicU64]>; 2],
    counts: Arc<ForwarderCounts>,
    /// Of answers to senders.
    limiter: Limiter,
    /// Into the tunnels.
    own_frames: OwnFrames<'p>,
}

/// Assignment of frames to lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lanes {
    /// One lane.
    One,
    /// By flow hash.
    Flow(usize),
    /// The next lane for each batch: no order is kept.
    Spray,
}

/// Rules shared by all workers, read once per batch.
#[derive(Debug)]
struct Table {
    fdb: Fdb,
    rules: Arc<Rules>,
    /// Not with a fast path, whose programs count the frames of both paths.
    policer: Option<TokenBucket>,
    fast: Option<FastTable>,
}

/// State protected by the ingress lock.
#[derive(Debug)]
struct Ingress<'p> {
    rx: PortRx<'p>,
    pool: &'p Pool,
    spare: Vec<Taken<'p>>,
    batch_count: usize,
}

/// State of a worker between turns: reused vectors, so that no turn allocates, and the rules last
/// read.
#[derive(Debug, Default)]
pub struct Worker<'a> {
    tokens: Vec<BatchTicket<'a>>,
    rules: Option<Arc<Rules>>,
    /// Reloads before which `rules` were read, of the direction out of the tunnels.
    reload_count: u64,
    worked: u64,
    spare: Vec<Taken<'a>>,
    held: Vec<Option<Taken<'a>>>,
    /// Not sent yet.
    replies: Vec<Reply<'a>>,
    /// Frames processed in both directions.
    pub frame_count: u64,
}

impl<'p> Forwarder<'p> {
    /// Connects the port of plain frames to the port of the tunnels.
    ///
    /// Errors: `spec.order` is out of range, or no file descriptor is free.
    pub fn new(
        pool: &'p Pool,
        port: IoPort<'p>,
        underlay: IoPort<'p>,
        spec: ForwarderSpec,
    ) -> Result<Forwarder<'p>, ForwarderError> {
        let counts = Arc::new(ForwarderCounts::default());
        let rules = Arc::new(Rules::from(spec.rules));
        let sockets = [owned_sockets(&port.rx)?, owned_sockets(&underlay.rx)?];
        let queue_counts = [port.rx.queue_counts(), underlay.rx.queue_counts()];
        let IoPort { filter: port_filter, rx: port_rx, tx: port_tx } = port;
        let IoPort { filter: underlay_filter, rx: underlay_rx, tx: underlay_tx } = underlay;
        let fast = spec.fast.map(Arc::new);
        let is_shaped = spec.shaper.is_some();
        let into_egress =
            Egress::new(underlay_tx, pool, spec.shaper, rules.clone(), counts.clone(), 0);
        let out_egress = Egress::new(port_tx, pool, None, rules.clone(), counts.clone(), 1);
        let (lanes, order) = match spec.order.lanes {
            _ if !spec.tuning.is_ordered => {
                (Lanes::Spray, OrderSpec { lanes: LANE_COUNT_MAX, ..spec.order })
            }
            1 => (Lanes::One, spec.order),
            count => (Lanes::Flow(count), spec.order),
        };
        let mut table = Table {
            fdb: spec.fdb,
            policer: if fast.is_some() { None } else { rules.bucket() },
            fast: fast.clone().map(|path| FastTable::new(path, is_shaped)),
            rules,
        };
        table.apply_fast(true);
        Ok(Forwarder {
            filters: [port_filter, underlay_filter],
            fast,
            missing: Default::default(),
            into_tunnels: Order::new(order, Ingress::new(port_rx, pool), into_egress)?,
            out_of_tunnels: Order::new(order, Ingress::new(underlay_rx, pool), out_egress)?,
            pool,
            table: Mutex::new(table),
            reload_count: AtomicU64::new(0),
            lanes,
            tuning: spec.tuning,
            is_unfinished: spec.is_unfinished,
            sockets,
            queue_counts,
            counts,
            limiter: Limiter::default(),
            own_frames: OwnFrames::default(),
        })
    }

    /// Attaches the programs of the fast path, if there is one. Call it on a thread in the
    /// interfaces' network namespace.
    pub fn attach(&self, mode: XdpMode) -> Result<(), IoError> {
        self.fast.as_ref().map_or(Ok(()), |fast| Ok(fast.attach(mode)?))
    }

    /// Regular work for the fast path: brings the times of its last frames into the forwarding
    /// table, and removes what has expired. Call it a few times a second.
    pub fn maintain(&self, now_ns: u64) {
        let Some(fast) = &self.fast else { return };
        // A station that cannot be read now is refreshed the next time.
        let entered = fast.stations().unwrap_or_default();
        let mut table = self.table();
        let Table { fdb, fast: Some(kept), .. } = &mut *table else { return };
        kept.refresh(fdb, &entered, now_ns);
        self.missing.iter().for_each(Missing::give_up);
    }

    /// Errors of the interfaces that take no frames from the fast path, by direction.
    pub fn refusals(&self) -> [Option<std::io::Error>; 2] {
        self.fast.as_ref().map_or([None, None], |fast| fast.refusals())
    }

    /// One turn of a worker in each direction. Returns the number of admitted frames.
    ///
    /// Never waits. If it returns 0, the caller may sleep ([`Self::wait`]), but no longer than the
    /// rings take to fill.
    ///
    /// - `now_ns`: a clock that all workers share.
    pub fn turn<'a>(&'a self, worker: &mut Worker<'a>, now_ns: u64) -> Result<usize, IoError> {
        let admitted = self.admit(&self.into_tunnels, worker);
        let mut taken = admitted;
        let mut tokens = std::mem::take(&mut worker.tokens);
        for mut token in tokens.drain(..) {
            self.encapsulate(&mut token, worker, now_ns);
            token.publish();
        }
        worker.tokens = tokens;
        self.let_out(&self.into_tunnels, now_ns)?;
        if admitted == 0 {
            self.settle(FastDirection::Into, &self.into_tunnels);
        }
        let admitted = self.admit(&self.out_of_tunnels, worker);
        taken += admitted;
        let mut tokens = std::mem::take(&mut worker.tokens);
        for mut token in tokens.drain(..) {
            self.decapsulate(&mut token, worker, now_ns);
            token.publish();
        }
        worker.tokens = tokens;
        self.send_replies(worker);
        self.let_out(&self.out_of_tunnels, now_ns)?;
        if admitted == 0 {
            self.settle(FastDirection::OutOf, &self.out_of_tunnels);
        }
        worker.frame_count += taken as u64;
        Ok(taken)
    }

    /// Sleeps until a frame arrives at a queue of either port, at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> std::io::Result<()> {
        let sockets = self.sockets.iter().flatten().map(AsFd::as_fd);
        let Some(first) = sockets.clone().next() else { return Ok(()) };
        let mut polled = [first; FDS_MAX];
        let mut count = 0;
        for (place, socket) in polled.iter_mut().zip(sockets) {
            *place = socket;
            count += 1;
        }
        sys::poll::readable(&polled[..count], timeout).map(drop)
    }

    /// Kernel counters of the receive sockets of port and underlay; `None` if they are not AF_XDP.
    pub fn ring_statistics(&self) -> [Option<XskStatistics>; 2] {
        [0, 1].map(|at| crate::ports::xsk_statistics(self.sockets[at].iter().map(AsFd::as_fd)))
    }

    /// Frames that the packet sockets of port and underlay have dropped for lack of room since the last call.
    pub fn take_socket_drop_counts(&self) -> [u64; 2] {
        [0, 1].map(|at| {
            crate::ports::take_packet_drop_count(self.sockets[at].iter().map(AsFd::as_fd))
        })
    }

    /// Frames received by each queue of port and underlay.
    pub fn queue_frames(&self) -> [Vec<u64>; 2] {
        [0, 1].map(|at| {
            self.queue_counts[at].iter().map(|count| count.load(Ordering::Relaxed)).collect()
        })
    }

    /// Replaces the rules from the next batch on, without losing a frame. Waits for the egress locks, which
    /// workers hold for microseconds, and with programs in front for an RCU grace period behind the change.
    ///
    /// - `fdb`: makes the new forwarding table from the current one.
    pub fn reload(&self, rules: RulesSpec, fdb: impl FnOnce(&Fdb) -> Fdb) {
        let rules = Arc::new(Rules::from(rules));
        // First, so that no frame judged by the new rules is copied into tunnels by the old ones.
        for order in [&self.into_tunnels, &self.out_of_tunnels] {
            while !order.visit(|egress| egress.set_rules(&rules)) {
                std::thread::yield_now();
            }
        }
        let mut table = self.table();
        table.fdb = fdb(&table.fdb);
        let is_limit_new = rules.policer != table.rules.policer;
        if is_limit_new && self.fast.is_none() {
            table.policer = rules.bucket();
        }
        table.rules = rules;
        self.reload_count.fetch_add(1, Ordering::Release);
        table.apply_fast(is_limit_new);
        drop(table);
        // For the next reload, so that this one acts at once.
        if let Some(fast) = &self.fast {
            fast.wait_for_readers();
        }
    }

    /// Replaces the shaper into the tunnels; queued frames move to the new one. Waits for the
    /// egress lock, which workers hold for microseconds.
    ///
    /// Returns the number of frames that did not fit the new queues.
    pub fn set_shaper(&self, mut shaper: Option<Shaper>, now_ns: u64) -> usize {
        let is_shaped = shaper.is_some();
        // The programs send nothing past a queue.
        self.set_shaped(is_shaped, |was| is_shaped && !was);
        let mut dropped = 0;
        while !self.into_tunnels.visit(|egress| {
            dropped = egress.set_shaper(shaper.take(), now_ns);
        }) {
            std::thread::yield_now();
        }
        self.set_shaped(is_shaped, |was| was && !is_shaped);
        dropped
    }

    fn set_shaped(&self, is_shaped: bool, is_due: impl FnOnce(bool) -> bool) {
        let mut table = self.table();
        if let Some(fast) = &mut table.fast
            && is_due(fast.is_shaped)
        {
            fast.is_shaped = is_shaped;
            table.apply_fast(false);
        }
    }

    /// Known addresses: address, port, and true if static.
    pub fn addresses(&self, now_ns: u64) -> Vec<([u8; 6], FdbPort, bool)> {
        self.table().fdb.iter(now_ns).map(|(_, mac, port, fixed)| (mac, port, fixed)).collect()
    }

    /// Frames in the shaper's queues; `None` without a shaper, or while it is in use.
    pub fn queued(&self) -> Option<usize> {
        let mut count = None;
        self.into_tunnels.visit(|egress| count = egress.queued());
        count
    }

    /// Order counters of both directions: into the tunnels, and out of them.
    pub fn counters(&self) -> [OrderCounters; 2] {
        [self.into_tunnels.counters(), self.out_of_tunnels.counters()]
    }

    /// Counters by name.
    pub fn counts(&self) -> NamedCounts {
        let mut named = self.counts.named();
        named.push(("evicted", self.table().fdb.evicted_count()));
        if let Some(fast) = &self.fast {
            named.extend(fast::counts(fast).unwrap_or_default());
            let refused = self.table().fast.as_ref().map_or(0, |fast| fast.refused_count);
            named.push(("fast_entries_refused", refused));
        }
        named
    }

    /// XDP programs of both ports, if they have any.
    pub fn filters(&self) -> &[Option<PortFilter>; 2] {
        &self.filters
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is still usable after a panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if no frame is in a worker, a queue or the kernel's send ring.
    fn is_empty(&self, order: &Order<Ingress<'p>, Egress<'p>>) -> bool {
        let mut is_idle = false;
        order.settled_frames().is_some()
            && order.visit(|egress| is_idle = egress.is_idle())
            && is_idle
    }

    /// Tells the fast path how many of the frames that it gave to the slow path have left. Once all
    /// have, it forwards the stations that wait: no frame of theirs can overtake another.
    fn settle(&self, direction: FastDirection, order: &Order<Ingress<'p>, Egress<'p>>) {
        let Some(fast) = &self.fast else { return };
        if fast.given(direction) == fast.finished(direction) {
            return;
        }
        let Some(admitted) = order.settled_frames() else { return };
        // Read after those that it is part of: a smaller result only waits longer.
        let own = match direction {
            FastDirection::Into => self.own_frames.admitted_count(),
            FastDirection::OutOf => 0,
        };
        let admitted = admitted.saturating_sub(own);
        let sockets = self.sockets[direction as usize].iter().map(AsFd::as_fd);
        // Frames that were given, but found no room. A TAP device does not tell its own to this socket.
        let lost = crate::ports::xsk_statistics(sockets).unwrap_or_default();
        if self.is_empty(order) {
            let counted = admitted + lost.rx_dropped_count + lost.rx_ring_full_count;
            let missing = &self.missing[direction as usize];
            fast.set_finished(direction, missing.finished(fast.given(direction), counted));
        }
    }

    /// Admits frames and issues batch tickets for them.
    fn admit<'a>(
        &'a self,
        order: &'a Order<Ingress<'p>, Egress<'p>>,
        worker: &mut Worker<'a>,
    ) -> usize {
        let mut taken = 0;
        let lanes = self.lanes;
        order.admit(&mut worker.tokens, |ingress, intake| {
            ingress.restock();
            ingress.batch_count = ingress.batch_count.wrapping_add(1);
            let sprayed = ingress.batch_count % LANE_COUNT_MAX;
            let mut room = intake.room().min(self.tuning.batch_frames.max(1));
            let refused = |frame: Frame| {
                // Returns the frame to the pool. Does not happen: at most `room` frames are taken.
                drop(ingress.pool.claim(frame.index()));
            };
            let own = if std::ptr::eq(order, &self.into_tunnels) {
                self.own_frames.admit(room, |frame| intake.push(0, frame).unwrap_or_else(refused))
            } else {
                0
            };
            room -= own;
            taken = own;
            taken += match lanes {
                Lanes::Flow(count) => ingress.rx.rx_take(room, |mut frame, offset, len| {
                    let bytes = frame.bytes().get(offset..offset + len).unwrap_or(&[]);
                    let lane = lane_index(flow::tuple(bytes).crc32c(), count);
                    intake.push(lane, parked(frame, offset, len)).unwrap_or_else(refused);
                }),
                Lanes::One | Lanes::Spray => {
                    let mut lane = intake.lane(if lanes == Lanes::One { 0 } else { sprayed });
                    ingress.rx.rx_take(room, |frame, offset, len| {
                        lane.push(parked(frame, offset, len)).unwrap_or_else(refused);
                    })
                }
            };
        });
        taken
    }

    fn let_out(&self, order: &Order<Ingress<'p>, Egress<'p>>, now_ns: u64) -> Result<(), IoError> {
        let mut failed = None;
        order.visit(|egress| {
            egress.keep_up(now_ns);
            failed = egress.failed.take();
        });
        order.drain(now_ns);
        failed.map_or(Ok(()), Err)
    }
}

impl Drop for Forwarder<'_> {
    fn drop(&mut self) {
        // Before the sockets are closed, as the filters are.
        if let Some(fast) = &self.fast {
            fast.detach();
        }
    }
}

impl Table {
    /// Makes the fast path follow the rules and the table.
    fn apply_fast(&mut self, is_limit_new: bool) {
        let Table { fdb, rules, fast: Some(fast), .. } = self else { return };
        let now_ns = sys::clock::monotonic_ns();
        fast.apply(rules, fdb, now_ns);
        if is_limit_new {
            fast.set_policer(rules, now_ns);
        }
    }
}

/// Updates the worker's rules to the shared ones.
fn keep(seen: &mut Option<Arc<Rules>>, current: &Arc<Rules>) {
    if !seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, current)) {
        *seen = Some(current.clone());
    }
}

impl<'p> Ingress<'p> {
    fn new(rx: PortRx<'p>, pool: &'p Pool) -> Ingress<'p> {
        Ingress { rx, pool, spare: Vec::with_capacity(1024), batch_count: 0 }
    }

    /// Refills the fill rings in which enough frames are missing.
    fn restock(&mut self) {
        self.rx.rx_post(self.pool, &mut self.spare, RESTOCK_FRAMES);
    }
}

/// The receive sockets of all queues, to be polled.
fn owned_sockets(rx: &PortRx<'_>) -> Result<Vec<OwnedFd>, ForwarderError> {
    let sockets = rx.sockets().map(|socket| socket.try_clone_to_owned());
    sockets.collect::<Result<_, _>>().map_err(ForwarderError::Descriptor)
}

/// A frame in the pool. Frames are far below 64 KiB.
fn parked(frame: Taken<'_>, offset: usize, len: usize) -> Frame {
    Frame::new(frame.park(), offset as u16, len as u16, 0)
}

fn frame_place(frame: Frame) -> PacketPlace {
    PacketPlace { at: frame.offset().into(), len: frame.len_bytes().into() }
}
