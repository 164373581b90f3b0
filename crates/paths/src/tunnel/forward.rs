//! The forwarder: plain frames from a port into tunnels, and back, each direction in order
//! however many workers run it.
//!
//! A worker owns nothing but its tokens: it calls [`Forwarder::turn`] again and again, with
//! the time. Frames stay where the kernel put them from receiving to sending.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use io::IoError;
use io::forward::{Pool, PoolRx, PoolTx, Port as IoPort, PortFilter, Taken};
use wire::{ethernet, flow};

use super::decap::{Decap, DecapSpec, DropReason};
use super::encap::{Encap, EncapDrop, Mark, Place};
use super::fdb::{Fdb, Learned, Port};
use super::order::{
    BATCH_FRAMES_MAX, Books, Frame, Order, OrderError, OrderSpec, Recycled, Sink, Token, Verdict,
    lane_of,
};
use super::qos::{Classifier, Shaper};

/// Frames that a port may lack before it is restocked: fewer are not worth the cache line.
const RESTOCK_FRAMES: usize = 64;
/// In a frame's class: it is for every tunnel, and has no outer headers yet.
const FLOOD: u8 = 0x80;

/// What a forwarder needs beside its ports.
#[derive(Debug)]
pub struct ForwarderSpec {
    /// Into each tunnel; indexes are those of `decap.tunnels`.
    pub encaps: Vec<Encap>,
    /// Out of the tunnels.
    pub decap: DecapSpec,
    /// The forwarding table, static addresses entered.
    pub fdb: Fdb,
    /// Whether addresses are learnt.
    pub learns: bool,
    /// Classes of frames into the tunnels.
    pub classifier: Classifier,
    /// Shaper and queues into the tunnels, after the order is restored.
    pub shaper: Option<Shaper>,
    /// Order restoration, of each direction; flows are spread over its lanes.
    pub order: OrderSpec,
}

/// Counters, in frames.
#[derive(Debug, Default)]
struct Counts {
    encap_drops: [AtomicU64; EncapDrop::ALL.len()],
    decap_drops: [AtomicU64; DropReason::ALL.len()],
    local_count: AtomicU64,
    flood_count: AtomicU64,
    runt_count: AtomicU64,
    unlearnt_count: AtomicU64,
    odd_ecn_count: AtomicU64,
    out: [OutCounts; 2],
}

/// Of one sending side.
#[derive(Debug, Default)]
struct OutCounts {
    sent_count: AtomicU64,
    ring_full_count: AtomicU64,
    tail_drop_count: AtomicU64,
    copy_failed_count: AtomicU64,
}

/// A forwarder between two ports.
#[derive(Debug)]
pub struct Forwarder<'p> {
    // Dropped first: no frame is directed to a socket that is gone.
    filters: [PortFilter; 2],
    into_tunnels: Order<Ingress<'p>, Egress<'p>>,
    out_of_tunnels: Order<Ingress<'p>, Egress<'p>>,
    pool: &'p Pool,
    encaps: Arc<[Encap]>,
    decap: Decap,
    fdb: Mutex<Fdb>,
    learns: bool,
    classifier: Classifier,
    lanes: usize,
    counts: Arc<Counts>,
}

/// What the ingress gate protects.
#[derive(Debug)]
struct Ingress<'p> {
    rx: PoolRx<'p>,
    pool: &'p Pool,
    spare: Vec<Taken<'p>>,
}

/// What the egress gate protects.
#[derive(Debug)]
struct Egress<'p> {
    tx: PoolTx<'p>,
    pool: &'p Pool,
    shaper: Option<Shaper>,
    encaps: Arc<[Encap]>,
    counts: Arc<Counts>,
    /// Which of `counts.out`.
    side: usize,
    now_ns: u64,
    flood_sequence: u32,
    reaped: Vec<Taken<'p>>,
    recycled: Vec<Taken<'p>>,
    posted: bool,
    failed: Option<IoError>,
}

/// What a worker keeps from turn to turn: its tokens' places, so that no turn allocates.
#[derive(Debug, Default)]
pub struct Worker<'a> {
    tokens: Vec<Token<'a>>,
}

/// Counters of a forwarder by name, in frames.
pub type NamedCounts = Vec<(&'static str, u64)>;

impl<'p> Forwarder<'p> {
    /// Joins the port of plain frames and that of the tunnels.
    pub fn new(
        pool: &'p Pool,
        port: IoPort<'p>,
        underlay: IoPort<'p>,
        spec: ForwarderSpec,
    ) -> Result<Forwarder<'p>, OrderError> {
        let counts = Arc::new(Counts::default());
        let encaps: Arc<[Encap]> = spec.encaps.into();
        let ingress = |rx| Ingress { rx, pool, spare: Vec::with_capacity(1024) };
        let egress = |tx, side, shaper| Egress {
            tx,
            pool,
            shaper,
            encaps: encaps.clone(),
            counts: counts.clone(),
            side,
            now_ns: 0,
            flood_sequence: 0,
            reaped: Vec::with_capacity(2048),
            recycled: Vec::with_capacity(BATCH_FRAMES_MAX),
            posted: false,
            failed: None,
        };
        let IoPort { filter: port_filter, rx: port_rx, tx: port_tx } = port;
        let IoPort { filter: underlay_filter, rx: underlay_rx, tx: underlay_tx } = underlay;
        let into_egress = egress(underlay_tx, 0, spec.shaper);
        let out_egress = egress(port_tx, 1, None);
        Ok(Forwarder {
            filters: [port_filter, underlay_filter],
            into_tunnels: Order::new(spec.order, ingress(port_rx), into_egress)?,
            out_of_tunnels: Order::new(spec.order, ingress(underlay_rx), out_egress)?,
            pool,
            encaps,
            decap: Decap::new(spec.decap),
            fdb: Mutex::new(spec.fdb),
            learns: spec.learns,
            classifier: spec.classifier,
            lanes: spec.order.lanes,
            counts,
        })
    }

    /// One turn of a worker in each direction; returns how many frames it took in.
    ///
    /// Never waits. When it returns 0 the caller may sleep for a while, no longer than the
    /// rings last.
    ///
    /// - `now_ns`: any clock that all workers share.
    pub fn turn<'a>(&'a self, worker: &mut Worker<'a>, now_ns: u64) -> Result<usize, IoError> {
        let mut taken = self.admit(&self.into_tunnels, worker);
        for mut token in worker.tokens.drain(..) {
            self.encapsulate(&mut token, now_ns);
            token.publish();
        }
        self.let_out(&self.into_tunnels, now_ns)?;
        taken += self.admit(&self.out_of_tunnels, worker);
        for mut token in worker.tokens.drain(..) {
            self.decapsulate(&mut token, now_ns);
            token.publish();
        }
        self.let_out(&self.out_of_tunnels, now_ns)?;
        Ok(taken)
    }

    /// Books of both directions: into the tunnels, and out of them.
    pub fn books(&self) -> [Books; 2] {
        [self.into_tunnels.books(), self.out_of_tunnels.books()]
    }

    /// Counters by name.
    pub fn counts(&self) -> NamedCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &*self.counts;
        let mut named = vec![
            ("into_tunnels_sent", load(&counts.out[0].sent_count)),
            ("into_tunnels_ring_full", load(&counts.out[0].ring_full_count)),
            ("into_tunnels_tail_drop", load(&counts.out[0].tail_drop_count)),
            ("into_tunnels_copy_failed", load(&counts.out[0].copy_failed_count)),
            ("out_of_tunnels_sent", load(&counts.out[1].sent_count)),
            ("out_of_tunnels_ring_full", load(&counts.out[1].ring_full_count)),
            ("local", load(&counts.local_count)),
            ("flooded", load(&counts.flood_count)),
            ("port_runt", load(&counts.runt_count)),
            ("unlearnt", load(&counts.unlearnt_count)),
            ("odd_ecn", load(&counts.odd_ecn_count)),
        ];
        named.extend(EncapDrop::ALL.map(|r| (r.name(), load(&counts.encap_drops[r.index()]))));
        named.extend(DropReason::ALL.map(|r| (r.name(), load(&counts.decap_drops[r.index()]))));
        named
    }

    /// What the two ports' XDP programs have seen.
    pub fn filters(&self) -> &[PortFilter; 2] {
        &self.filters
    }

    /// Takes frames in and draws tokens for them.
    fn admit<'a>(
        &'a self,
        order: &'a Order<Ingress<'p>, Egress<'p>>,
        worker: &mut Worker<'a>,
    ) -> usize {
        let mut taken = 0;
        let lanes = self.lanes;
        order.admit(&mut worker.tokens, |ingress, intake| {
            ingress.restock();
            taken = ingress.rx.rx_take(intake.room(), |mut frame, offset, len| {
                let lane = match lanes {
                    1 => 0,
                    _ => {
                        let bytes = frame.bytes().get(offset..offset + len).unwrap_or(&[]);
                        lane_of(flow::tuple(bytes).crc32c(), lanes)
                    }
                };
                // Frames are 4096 bytes at most.
                let frame = Frame::new(frame.park(), offset as u16, len as u16, 0);
                if let Err(frame) = intake.push(lane, frame) {
                    // Back to the pool: no lane had less room than was asked for.
                    drop(ingress.pool.claim(frame.index()));
                }
            });
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

    /// Decides where each frame goes, and puts the headers on.
    fn encapsulate(&self, token: &mut Token<'_>, now_ns: u64) {
        let mut targets = [Target::Drop; BATCH_FRAMES_MAX];
        {
            // Once a batch, and never while headers are written.
            let mut fdb = self.fdb.lock().unwrap_or_else(PoisonError::into_inner);
            for (at, target) in targets.iter_mut().enumerate().take(token.len()) {
                let Some(frame) = token.frame(at) else { break };
                *target = self.target(&mut fdb, frame, now_ns);
            }
        }
        let first_sequence = (token.ticket() as u32).wrapping_mul(BATCH_FRAMES_MAX as u32);
        let mut at = 0;
        token.judge(|frame| {
            let (target, sequence) = (targets[at], first_sequence.wrapping_add(at as u32));
            at += 1;
            let tunnel = match target {
                Target::Drop => return Verdict::Drop,
                Target::Flood => return Verdict::Forward(frame.in_class(FLOOD)),
                Target::Tunnel(tunnel) => tunnel,
            };
            let Some(encap) = self.encaps.get(usize::from(tunnel)) else { return Verdict::Drop };
            let Some(mut taken) = self.pool.claim(frame.index()) else { return Verdict::Drop };
            let place = place_of(frame);
            let bytes = taken.bytes();
            let inner = bytes.get(place.at..place.at + place.len).unwrap_or(&[]);
            let class = self.classifier.class_of(inner) & !FLOOD;
            let mark = Mark { flow_hash: flow::tuple(inner).crc32c(), sequence };
            let verdict = match encap.prepend(bytes, place, mark) {
                Ok(whole) => Verdict::Forward(moved(frame, whole).in_class(class)),
                Err(reason) => {
                    add(&self.counts.encap_drops[reason.index()]);
                    Verdict::Drop
                }
            };
            taken.park();
            verdict
        });
    }

    fn target(&self, fdb: &mut Fdb, frame: Frame, now_ns: u64) -> Target {
        let Some(mut taken) = self.pool.claim(frame.index()) else { return Target::Drop };
        let macs = macs(taken.bytes(), place_of(frame));
        taken.park();
        let Some((dst, src)) = macs else {
            add(&self.counts.runt_count);
            return Target::Drop;
        };
        if self.learns && fdb.learn(0, src, Port::Local(0), now_ns) == Learned::Full {
            add(&self.counts.unlearnt_count);
        }
        match fdb.lookup(0, dst, now_ns) {
            Some(Port::Tunnel(tunnel)) => Target::Tunnel(tunnel),
            Some(Port::Local(_)) => {
                add(&self.counts.local_count);
                Target::Drop
            }
            None if self.encaps.len() == 1 => Target::Tunnel(0),
            None => Target::Flood,
        }
    }

    /// Checks each frame, and learns who is behind its tunnel.
    fn decapsulate(&self, token: &mut Token<'_>, now_ns: u64) {
        let mut sources = [([0; 6], 0); BATCH_FRAMES_MAX];
        let mut source_count = 0;
        token.judge(|frame| {
            let Some(mut taken) = self.pool.claim(frame.index()) else { return Verdict::Drop };
            let bytes = taken.bytes();
            let verdict = match self.decap.open(bytes, place_of(frame)) {
                Ok(inner) => {
                    if let Some((_, src)) = macs(bytes, inner.place) {
                        sources[source_count] = (src, inner.tunnel as u16);
                        source_count += 1;
                    }
                    if inner.has_odd_ecn {
                        add(&self.counts.odd_ecn_count);
                    }
                    Verdict::Forward(moved(frame, inner.place))
                }
                Err(reason) => {
                    add(&self.counts.decap_drops[reason.index()]);
                    Verdict::Drop
                }
            };
            taken.park();
            verdict
        });
        if self.learns && source_count > 0 {
            let mut fdb = self.fdb.lock().unwrap_or_else(PoisonError::into_inner);
            for (src, tunnel) in sources.iter().take(source_count) {
                if fdb.learn(0, *src, Port::Tunnel(*tunnel), now_ns) == Learned::Full {
                    add(&self.counts.unlearnt_count);
                }
            }
        }
    }
}

/// Where a frame from the port goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Drop,
    Tunnel(u16),
    Flood,
}

impl Ingress<'_> {
    /// Gives the kernel frames to receive into, when enough are missing.
    fn restock(&mut self) {
        let missing = self.rx.rx_missing();
        if missing >= RESTOCK_FRAMES {
            let count = missing.min(self.spare.capacity());
            self.pool.take(&mut self.spare, count);
            self.rx.rx_post(&mut self.spare);
        }
    }
}

impl<'p> Egress<'p> {
    /// Takes back what was sent, and sends what had to wait.
    fn keep_up(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.tx.tx_reap(&mut self.reaped);
        self.pool.give_back(self.reaped.drain(..));
        self.pump();
        // A kernel that was busy may have left frames in the ring.
        if self.posted || self.tx.tx_pending() > 0 {
            self.push_out();
        }
    }

    /// Sends what the shaper lets go.
    fn pump(&mut self) {
        while self.shaper.is_some() && self.tx.tx_room(1) > 0 {
            let next = self.shaper.as_mut().and_then(|shaper| shaper.dequeue(self.now_ns));
            let Some(frame) = next else { break };
            self.post(frame);
        }
    }

    fn push_out(&mut self) {
        self.posted = false;
        self.tx.tx_publish();
        if let Err(error) = self.tx.kick() {
            self.failed = Some(error.into());
        }
    }

    fn counts(&self) -> &OutCounts {
        &self.counts.out[self.side]
    }

    /// Hands a frame to the kernel, or drops it when the ring is full.
    fn post(&mut self, frame: Frame) {
        let Some(taken) = self.pool.claim(frame.index()) else { return };
        self.post_taken(taken, place_of(frame));
    }

    fn post_taken(&mut self, taken: Taken<'p>, place: Place) {
        match self.tx.tx_post(taken, place.at, place.len) {
            Ok(()) => {
                add(&self.counts().sent_count);
                self.posted = true;
            }
            Err(taken) => {
                add(&self.counts().ring_full_count);
                self.recycled.push(taken);
            }
        }
    }

    /// A copy into every tunnel.
    fn flood(&mut self, frame: Frame) {
        let Some(mut original) = self.pool.claim(frame.index()) else { return };
        add(&self.counts.flood_count);
        let place = place_of(frame);
        let inner = original.bytes().get(place.at..place.at + place.len).unwrap_or(&[]);
        let flow_hash = flow::tuple(inner).crc32c();
        let encaps = self.encaps.clone();
        for encap in encaps.iter() {
            self.pool.take(&mut self.reaped, 1);
            let Some(mut copy) = self.reaped.pop() else {
                add(&self.counts().copy_failed_count);
                continue;
            };
            copy.bytes().copy_from_slice(original.bytes());
            self.flood_sequence = self.flood_sequence.wrapping_add(1);
            let mark = Mark { flow_hash, sequence: self.flood_sequence };
            match encap.prepend(copy.bytes(), place, mark) {
                Ok(whole) => self.post_taken(copy, whole),
                Err(reason) => {
                    add(&self.counts.encap_drops[reason.index()]);
                    self.recycled.push(copy);
                }
            }
        }
        self.recycled.push(original);
    }
}

impl Sink for Egress<'_> {
    fn room_frames(&mut self) -> usize {
        match self.shaper {
            // Queues drop their tail rather than hold the order up.
            Some(_) => usize::MAX,
            None => self.tx.tx_room(BATCH_FRAMES_MAX),
        }
    }

    fn forward(&mut self, frame: Frame) {
        if frame.class() & FLOOD != 0 {
            return self.flood(frame);
        }
        let Some(shaper) = &mut self.shaper else { return self.post(frame) };
        if let Err(frame) = shaper.enqueue(frame) {
            add(&self.counts.out[self.side].tail_drop_count);
            self.recycled.extend(self.pool.claim(frame.index()));
        }
    }

    fn recycle(&mut self, frame: Frame, _: Recycled) {
        self.recycled.extend(self.pool.claim(frame.index()));
    }

    fn flush(&mut self) {
        self.pump();
        self.pool.give_back(self.recycled.drain(..));
        if self.posted {
            self.push_out();
        }
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn place_of(frame: Frame) -> Place {
    Place { at: frame.offset().into(), len: frame.len_bytes().into() }
}

/// The frame at another place of its buffer, which is 4096 bytes at most.
fn moved(frame: Frame, place: Place) -> Frame {
    frame.moved(place.at as u16, place.len as u16)
}

/// Receiver and sender of an Ethernet frame; `None` when it is shorter than its header.
fn macs(bytes: &[u8], place: Place) -> Option<([u8; 6], [u8; 6])> {
    let frame = bytes.get(place.at..place.at.checked_add(place.len)?)?;
    let header: &[u8; ethernet::HEADER_BYTES] = frame.first_chunk()?;
    let (dst, rest) = header.split_first_chunk::<6>()?;
    Some((*dst, *rest.first_chunk::<6>()?))
}
