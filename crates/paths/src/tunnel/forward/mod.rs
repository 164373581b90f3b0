//! The forwarder: plain frames from a port into tunnels, and back, each direction in order
//! however many workers run it.
//!
//! A worker owns nothing but its tokens: it calls [`Forwarder::turn`] again and again, with
//! the time. Frames stay where the kernel put them from receiving to sending.

mod counts;
mod egress;
mod work;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use io::IoError;
use io::forward::{HEADROOM_BYTES, Pool, Port as IoPort, PortFilter, PortRx, Taken};
use wire::{ethernet, flow};

use super::decap::{Decap, DecapSpec};
use super::encap::{Encap, Mark, Place};
use super::fdb::{Fdb, Learned, Port};
use super::order::{
    BATCH_FRAMES_MAX, Books, Frame, LANE_COUNT_MAX, Order, OrderError, OrderSpec, Token, Verdict,
    lane_of,
};
use super::qos::{Classifier, Shaper};

pub use counts::NamedCounts;
pub use work::Work;

use counts::{Counts, add};
use egress::Egress;

/// Frames that a port may lack before it is restocked: fewer are not worth the cache line.
const RESTOCK_FRAMES: usize = 64;
/// In a frame's class: it is for every tunnel, and has no outer headers yet.
const FLOOD: u8 = 0x80;

/// What a forwarder needs beside its ports.
#[derive(Debug)]
pub struct ForwarderSpec {
    /// Tunnels, and what is done with frames.
    pub rules: RulesSpec,
    /// The forwarding table, static addresses entered.
    pub fdb: Fdb,
    /// Shaper and queues into the tunnels, after the order is restored.
    pub shaper: Option<Shaper>,
    /// Order restoration, of each direction; flows are spread over its lanes.
    pub order: OrderSpec,
    /// How it works.
    pub tuning: Tuning,
}

/// What can be changed while frames pass.
#[derive(Debug, Clone)]
pub struct RulesSpec {
    /// Into each tunnel; indexes are those of `decap.tunnels`.
    pub encaps: Vec<Encap>,
    /// Out of the tunnels.
    pub decap: DecapSpec,
    /// Whether addresses are learnt.
    pub learns: bool,
    /// Classes of frames into the tunnels.
    pub classifier: Classifier,
}

/// How a forwarder works; the default is what is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Frames of a ticket at most, 1 to [`BATCH_FRAMES_MAX`].
    pub batch_frames: usize,
    /// Whether frames leave in the order of their arrival. Off, a batch leaves as soon as its
    /// worker is done, whichever came first.
    pub is_ordered: bool,
    /// Whether outer headers go into the headroom in front of a frame; off, the frame is copied
    /// behind them into another.
    pub prepends: bool,
    /// Extra work on each frame into the tunnels.
    pub work: Work,
    /// Percentage of the frames into the tunnels that their worker drops, as a policer does.
    pub police_percent: u8,
}

impl Default for Tuning {
    fn default() -> Self {
        Tuning {
            batch_frames: BATCH_FRAMES_MAX,
            is_ordered: true,
            prepends: true,
            work: Work::default(),
            police_percent: 0,
        }
    }
}

/// A forwarder between two ports.
#[derive(Debug)]
pub struct Forwarder<'p> {
    // Dropped first: no frame is directed to a socket that is gone.
    filters: [Option<PortFilter>; 2],
    into_tunnels: Order<Ingress<'p>, Egress<'p>>,
    out_of_tunnels: Order<Ingress<'p>, Egress<'p>>,
    pool: &'p Pool,
    table: Mutex<Table>,
    lanes: Lanes,
    tuning: Tuning,
    sockets: [OwnedFd; 2],
    counts: Arc<Counts>,
}

/// Which lane a frame takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lanes {
    /// There is one.
    One,
    /// By its flow.
    Flow(usize),
    /// Each batch another: no order is kept.
    Spray,
}

/// What all workers share, and look at once a batch.
#[derive(Debug)]
struct Table {
    fdb: Fdb,
    rules: Arc<Rules>,
}

/// The rules as they are used.
#[derive(Debug)]
struct Rules {
    encaps: Vec<Encap>,
    decap: Decap,
    learns: bool,
    classifier: Classifier,
}

impl From<RulesSpec> for Rules {
    fn from(spec: RulesSpec) -> Rules {
        let RulesSpec { encaps, decap, learns, classifier } = spec;
        Rules { encaps, decap: Decap::new(decap), learns, classifier }
    }
}

/// What the ingress gate protects.
#[derive(Debug)]
struct Ingress<'p> {
    rx: PortRx<'p>,
    pool: &'p Pool,
    spare: Vec<Taken<'p>>,
    batch_count: usize,
}

/// What a worker keeps from turn to turn: its tokens' places, so that no turn allocates, and the
/// rules that it saw last.
#[derive(Debug, Default)]
pub struct Worker<'a> {
    tokens: Vec<Token<'a>>,
    rules: Option<Arc<Rules>>,
    worked: u64,
    spare: Vec<Taken<'a>>,
    /// Frames that it has had, in either direction.
    pub frame_count: u64,
}

impl<'p> Forwarder<'p> {
    /// Joins the port of plain frames and that of the tunnels.
    ///
    /// Errors: `spec.order` is out of range, or a descriptor could not be had.
    pub fn new(
        pool: &'p Pool,
        port: IoPort<'p>,
        underlay: IoPort<'p>,
        spec: ForwarderSpec,
    ) -> Result<Forwarder<'p>, ForwarderError> {
        let counts = Arc::new(Counts::default());
        let rules = Arc::new(Rules::from(spec.rules));
        let sockets = [
            port.rx.as_fd().try_clone_to_owned().map_err(ForwarderError::Descriptor)?,
            underlay.rx.as_fd().try_clone_to_owned().map_err(ForwarderError::Descriptor)?,
        ];
        let ingress = |rx| Ingress { rx, pool, spare: Vec::with_capacity(1024), batch_count: 0 };
        let egress =
            |tx, side, shaper| Egress::new(tx, pool, shaper, rules.clone(), counts.clone(), side);
        let IoPort { filter: port_filter, rx: port_rx, tx: port_tx } = port;
        let IoPort { filter: underlay_filter, rx: underlay_rx, tx: underlay_tx } = underlay;
        let into_egress = egress(underlay_tx, 0, spec.shaper);
        let out_egress = egress(port_tx, 1, None);
        let (lanes, order) = match spec.order.lanes {
            _ if !spec.tuning.is_ordered => {
                (Lanes::Spray, OrderSpec { lanes: LANE_COUNT_MAX, ..spec.order })
            }
            1 => (Lanes::One, spec.order),
            count => (Lanes::Flow(count), spec.order),
        };
        Ok(Forwarder {
            filters: [port_filter, underlay_filter],
            into_tunnels: Order::new(order, ingress(port_rx), into_egress)?,
            out_of_tunnels: Order::new(order, ingress(underlay_rx), out_egress)?,
            pool,
            table: Mutex::new(Table { fdb: spec.fdb, rules }),
            lanes,
            tuning: spec.tuning,
            sockets,
            counts,
        })
    }

    /// One turn of a worker in each direction; returns how many frames it took in.
    ///
    /// Never waits. When it returns 0 the caller may sleep for a while ([`Self::wait`]), no
    /// longer than the rings last.
    ///
    /// - `now_ns`: any clock that all workers share.
    pub fn turn<'a>(&'a self, worker: &mut Worker<'a>, now_ns: u64) -> Result<usize, IoError> {
        let mut taken = self.admit(&self.into_tunnels, worker);
        let mut tokens = std::mem::take(&mut worker.tokens);
        for mut token in tokens.drain(..) {
            self.encapsulate(&mut token, worker, now_ns);
            token.publish();
        }
        worker.tokens = tokens;
        self.let_out(&self.into_tunnels, worker, now_ns)?;
        taken += self.admit(&self.out_of_tunnels, worker);
        let mut tokens = std::mem::take(&mut worker.tokens);
        for mut token in tokens.drain(..) {
            self.decapsulate(&mut token, worker, now_ns);
            token.publish();
        }
        worker.tokens = tokens;
        self.let_out(&self.out_of_tunnels, worker, now_ns)?;
        worker.frame_count += taken as u64;
        Ok(taken)
    }

    /// Sleeps until a frame arrives at either port, at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> std::io::Result<()> {
        let [port, underlay] = self.sockets();
        io::poll::readable(&[port, underlay], timeout).map(drop)
    }

    /// The sockets that receive: port, underlay.
    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.sockets[0].as_fd(), self.sockets[1].as_fd()]
    }

    /// Has frames treated by other rules from the next batch on; none is lost by it.
    ///
    /// - `fdb`: makes the forwarding table that goes with them of the one that there is.
    pub fn reload(&self, rules: RulesSpec, fdb: impl FnOnce(&Fdb) -> Fdb) {
        let rules = Arc::new(Rules::from(rules));
        let mut table = self.table();
        table.fdb = fdb(&table.fdb);
        table.rules = rules;
    }

    /// Puts another shaper in place of that into the tunnels; what waits goes on to it. Waits
    /// for the egress gate, which workers hold for microseconds.
    ///
    /// Returns how many frames found no room in the new queues.
    pub fn set_shaper(&self, mut shaper: Option<Shaper>, now_ns: u64) -> usize {
        let mut dropped = 0;
        while !self.into_tunnels.visit(|egress| {
            dropped = egress.set_shaper(shaper.take(), now_ns);
        }) {
            std::thread::yield_now();
        }
        dropped
    }

    /// Addresses known now: address, where it is, and whether that is for good.
    pub fn addresses(&self, now_ns: u64) -> Vec<([u8; 6], Port, bool)> {
        self.table().fdb.iter(now_ns).map(|(_, mac, port, fixed)| (mac, port, fixed)).collect()
    }

    /// Frames that wait in the shaper's queues; `None` without one, or while it is in use.
    pub fn queued(&self) -> Option<usize> {
        let mut count = None;
        self.into_tunnels.visit(|egress| count = egress.queued());
        count
    }

    /// Books of both directions: into the tunnels, and out of them.
    pub fn books(&self) -> [Books; 2] {
        [self.into_tunnels.books(), self.out_of_tunnels.books()]
    }

    /// Counters by name.
    pub fn counts(&self) -> NamedCounts {
        self.counts.named()
    }

    /// What the two ports' XDP programs have seen, where they have any.
    pub fn filters(&self) -> &[Option<PortFilter>; 2] {
        &self.filters
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic leaves a table that is as good as any.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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
            ingress.batch_count = ingress.batch_count.wrapping_add(1);
            let sprayed = ingress.batch_count % LANE_COUNT_MAX;
            let room = intake.room().min(self.tuning.batch_frames.max(1));
            taken = ingress.rx.rx_take(room, |mut frame, offset, len| {
                let lane = match lanes {
                    Lanes::One => 0,
                    Lanes::Flow(count) => {
                        let bytes = frame.bytes().get(offset..offset + len).unwrap_or(&[]);
                        lane_of(flow::tuple(bytes).crc32c(), count)
                    }
                    Lanes::Spray => sprayed,
                };
                // Frames are far below 64 KiB.
                let frame = Frame::new(frame.park(), offset as u16, len as u16, 0);
                if let Err(frame) = intake.push(lane, frame) {
                    // Back to the pool: no lane had less room than was asked for.
                    drop(ingress.pool.claim(frame.index()));
                }
            });
        });
        taken
    }

    fn let_out(
        &self,
        order: &Order<Ingress<'p>, Egress<'p>>,
        worker: &Worker<'_>,
        now_ns: u64,
    ) -> Result<(), IoError> {
        let mut failed = None;
        order.visit(|egress| {
            egress.keep_up(worker.rules.as_ref(), now_ns);
            failed = egress.failed.take();
        });
        order.drain(now_ns);
        failed.map_or(Ok(()), Err)
    }

    /// Decides where each frame goes, and puts the headers on.
    fn encapsulate<'a>(&'a self, token: &mut Token<'a>, worker: &mut Worker<'a>, now_ns: u64) {
        let mut targets = [Target::Drop; BATCH_FRAMES_MAX];
        {
            // Once a batch, and never while headers are written.
            let mut table = self.table();
            keep(&mut worker.rules, &table.rules);
            let Table { fdb, rules } = &mut *table;
            for (at, target) in targets.iter_mut().enumerate().take(token.len()) {
                let Some(frame) = token.frame(at) else { break };
                *target = self.target(fdb, rules, frame, now_ns);
            }
        }
        let Worker { rules, worked, spare, .. } = worker;
        let Some(rules) = rules.as_deref() else { return };
        let first_sequence = (token.ticket() as u32).wrapping_mul(BATCH_FRAMES_MAX as u32);
        let mut at = 0;
        token.judge(|frame| {
            let (target, sequence) = (targets[at], first_sequence.wrapping_add(at as u32));
            at += 1;
            if !self.tuning.work.is_none() {
                *worked = self.tuning.work.spin(*worked);
            }
            if is_policed(sequence, self.tuning.police_percent) {
                add(&self.counts.policed_count);
                return Verdict::Drop;
            }
            let tunnel = match target {
                Target::Drop => return Verdict::Drop,
                Target::Flood => return Verdict::Forward(frame.in_class(FLOOD)),
                Target::Tunnel(tunnel) => tunnel,
            };
            let Some(encap) = rules.encaps.get(usize::from(tunnel)) else { return Verdict::Drop };
            let Some(taken) = self.pool.claim(frame.index()) else { return Verdict::Drop };
            let (mut taken, place, original) = match self.tuning.prepends {
                true => (taken, place_of(frame), None),
                false => match self.copied(spare, taken, place_of(frame)) {
                    Ok((copy, place, original)) => (copy, place, Some(original)),
                    Err(original) => {
                        add(&self.counts.uncopied_count);
                        original.park();
                        return Verdict::Drop;
                    }
                },
            };
            let index = taken.index();
            let bytes = taken.bytes();
            let inner = bytes.get(place.at..place.at + place.len).unwrap_or(&[]);
            let class = rules.classifier.class_of(inner) & !FLOOD;
            let mark = Mark { flow_hash: flow::tuple(inner).crc32c(), sequence };
            match encap.prepend(bytes, place, mark) {
                Ok(whole) => {
                    taken.park();
                    // An original that was copied is free now.
                    Verdict::Forward(Frame::new(index, whole.at as u16, whole.len as u16, class))
                }
                Err(reason) => {
                    add(&self.counts.encap_drops[reason.index()]);
                    original.unwrap_or(taken).park();
                    Verdict::Drop
                }
            }
        });
    }

    /// The frame once more, in another of the pool and behind room for headers; the original
    /// alone when there is no other.
    fn copied<'a>(
        &'a self,
        spare: &mut Vec<Taken<'a>>,
        mut original: Taken<'a>,
        from: Place,
    ) -> Result<(Taken<'a>, Place, Taken<'a>), Taken<'a>> {
        if spare.is_empty() {
            self.pool.take(spare, BATCH_FRAMES_MAX);
        }
        let Some(mut copy) = spare.pop() else { return Err(original) };
        let place = Place { at: HEADROOM_BYTES, len: from.len };
        let source = original.bytes().get(from.at..from.at + from.len);
        let target = copy.bytes().get_mut(place.at..place.at + place.len);
        let (Some(source), Some(target)) = (source, target) else { return Err(original) };
        target.copy_from_slice(source);
        Ok((copy, place, original))
    }

    fn target(&self, fdb: &mut Fdb, rules: &Rules, frame: Frame, now_ns: u64) -> Target {
        let Some(mut taken) = self.pool.claim(frame.index()) else { return Target::Drop };
        let macs = macs(taken.bytes(), place_of(frame));
        taken.park();
        let Some((dst, src)) = macs else {
            add(&self.counts.runt_count);
            return Target::Drop;
        };
        if rules.learns && fdb.learn(0, src, Port::Local(0), now_ns) == Learned::Full {
            add(&self.counts.unlearnt_count);
        }
        match fdb.lookup(0, dst, now_ns) {
            Some(Port::Tunnel(tunnel)) => Target::Tunnel(tunnel),
            Some(Port::Local(_)) => {
                add(&self.counts.local_count);
                Target::Drop
            }
            None if rules.encaps.len() == 1 => Target::Tunnel(0),
            None => Target::Flood,
        }
    }

    /// Checks each frame, and learns who is behind its tunnel.
    fn decapsulate(&self, token: &mut Token<'_>, worker: &mut Worker<'_>, now_ns: u64) {
        if worker.rules.is_none() {
            worker.rules = Some(self.table().rules.clone());
        }
        let Some(rules) = worker.rules.clone() else { return };
        let mut sources = [([0; 6], 0); BATCH_FRAMES_MAX];
        let mut source_count = 0;
        token.judge(|frame| {
            let Some(mut taken) = self.pool.claim(frame.index()) else { return Verdict::Drop };
            let bytes = taken.bytes();
            let verdict = match rules.decap.open(bytes, place_of(frame)) {
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
        let mut table = self.table();
        // Of tunnels by other numbers nothing is learnt.
        if rules.learns && Arc::ptr_eq(&rules, &table.rules) {
            for (src, tunnel) in sources.iter().take(source_count) {
                if table.fdb.learn(0, *src, Port::Tunnel(*tunnel), now_ns) == Learned::Full {
                    add(&self.counts.unlearnt_count);
                }
            }
        }
        keep(&mut worker.rules, &table.rules);
    }
}

/// Makes the worker's rules those of the table.
fn keep(seen: &mut Option<Arc<Rules>>, current: &Arc<Rules>) {
    if !seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, current)) {
        *seen = Some(current.clone());
    }
}

/// Whether a policer that drops so many of a hundred drops this one: spread evenly, and the
/// same in every run.
fn is_policed(sequence: u32, percent: u8) -> bool {
    percent > 0 && (sequence.wrapping_mul(0x9e37_79b9) >> 16) % 100 < u32::from(percent)
}

/// Why there is no such [`Forwarder`].
#[derive(Debug, thiserror::Error)]
pub enum ForwarderError {
    /// The order is out of range.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// The process has no descriptor left.
    #[error("a second descriptor of a port's socket")]
    Descriptor(#[source] std::io::Error),
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

fn place_of(frame: Frame) -> Place {
    Place { at: frame.offset().into(), len: frame.len_bytes().into() }
}

/// The frame at another place of its buffer, which is far below 64 KiB.
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
