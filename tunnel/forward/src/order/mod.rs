//! Order restoration (a reorder buffer): frames are admitted under tickets, processed in parallel
//! by the workers that hold the batch tickets, and delivered in ticket order.
//!
//! An [`Order`] connects a source, read by one worker at a time, to a sink, written by one worker
//! at a time. Every worker runs the same loop and needs no other thread:
//!
//! ```text
//! admit    try the ingress lock; take up to 64 frames of the source; issue a ticket
//! judge    decide on each frame of the batch ticket: encapsulate, police, drop
//! publish  or drop the batch ticket: it becomes a hole, which blocks no other
//! drain    try the egress lock; deliver what is ready, in order; check once more
//! ```
//!
//! - No worker waits for a lock: one that finds it held continues, and the holder does the work.
//! - The window bounds the tickets issued ahead of the head. When it is full, intake is refused and
//!   the source fills up, which is the back-pressure.
//! - A batch ticket that blocks others for `stuck_after_ns` times out and is counted; frames
//!   published later are recycled as late, never forwarded out of order.
//! - A **lane** is an ordering domain: one per port, or several with the flows spread over them by
//!   hash, so that a slow ticket blocks only its own lane.
//!
//! The caller passes the time. There is no clock, no wait and, after [`Order::new`], no allocation
//! in this module.

mod batch_ticket;
mod egress;
mod frame;
mod lane;
mod slot;
mod ticket;
mod try_lock;

use super::sync;

pub use batch_ticket::{BatchTicket, FrameVerdict};
pub use egress::{Drained, FrameSink, Recycled};
pub use frame::{FRAME_COUNT_MAX, Frame};
pub use ticket::{Filler, FrameIntake};

use egress::DrainEnd;
use lane::Lane;
use try_lock::TryLock;

/// Maximum number of frames per ticket.
pub const BATCH_FRAMES_MAX: usize = sync::BATCH_FRAMES_MAX;
/// Maximum number of lanes.
pub const LANE_COUNT_MAX: usize = 16;
/// Maximum number of outstanding tickets.
pub const WINDOW_TICKETS_MAX: usize = 1 << 16;

/// Configuration of an [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderSpec {
    /// Ordering domains, 1 to [`LANE_COUNT_MAX`].
    pub lanes: usize,
    /// Maximum outstanding tickets per lane, a power of two from 2 to [`WINDOW_TICKETS_MAX`].
    pub window_tickets: usize,
    /// Time for which a batch ticket may block others, in nanoseconds.
    pub stuck_after_ns: u64,
}

/// Error of [`Order::new`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Number of lanes out of range.
    #[error("invalid number of order lanes: {found}; give 1 to {LANE_COUNT_MAX}")]
    Lanes {
        /// Requested lanes.
        found: usize,
    },
    /// Window not a power of two, or out of range.
    #[error(
        "invalid order window: {found} tickets; give a power of two from 2 to {WINDOW_TICKETS_MAX}"
    )]
    Window {
        /// Requested tickets.
        found: usize,
    },
}

/// Result of [`Order::admit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Another worker holds the ingress lock.
    Busy,
    /// Number of tickets issued, possibly 0.
    Issued(usize),
}

/// Counters of an [`Order`] since its creation.
///
/// Each side updates its counters under its lock, so a snapshot taken while workers run is not
/// atomic.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct OrderCounters {
    /// Given a ticket.
    pub admitted_frames: u64,
    /// Passed to the egress in order.
    pub forwarded_frames: u64,
    /// Frames dropped by a worker, or with their batch ticket.
    pub dropped_frames: u64,
    /// Frames published after their ticket had timed out.
    pub late_frames: u64,
    /// Frames lost in a sink that panicked.
    pub undelivered_frames: u64,
    /// Tickets issued.
    pub ticket_count: u64,
    /// Tickets delivered with nothing to send.
    pub hole_count: u64,
    /// Tickets that timed out.
    pub timed_out_count: u64,
    /// Ticket numbers skipped because a ticket that timed out still had the slot.
    pub skipped_count: u64,
    /// Times that admission found a lane's window full.
    pub refused_count: u64,
}

impl OrderCounters {
    /// Frames admitted and not delivered yet: in slots, or with workers.
    pub fn in_flight_frames(&self) -> u64 {
        let out = self.forwarded_frames
            + self.dropped_frames
            + self.late_frames
            + self.undelivered_frames;
        self.admitted_frames.saturating_sub(out)
    }
}

/// A source and a sink with the order restored between them. See the [module](self).
#[derive(Debug)]
pub struct Order<R, X> {
    lanes: Box<[Lane]>,
    ingress: TryLock<R>,
    egress: TryLock<X>,
    stuck_after_ns: u64,
}

impl<R, X: FrameSink> Order<R, X> {
    /// An empty order. All its memory is allocated here: about 600 bytes a ticket.
    pub fn new(spec: OrderSpec, source: R, sink: X) -> Result<Order<R, X>, OrderError> {
        let OrderSpec { lanes, window_tickets, stuck_after_ns } = spec;
        if !(1..=LANE_COUNT_MAX).contains(&lanes) {
            return Err(OrderError::Lanes { found: lanes });
        }
        let in_range = (2..=WINDOW_TICKETS_MAX).contains(&window_tickets);
        if !in_range || !window_tickets.is_power_of_two() {
            return Err(OrderError::Window { found: window_tickets });
        }
        Ok(Order {
            lanes: (0..lanes).map(|_| Lane::new(window_tickets)).collect(),
            ingress: TryLock::new(source),
            egress: TryLock::new(sink),
            stuck_after_ns,
        })
    }

    /// Admits frames from the source, unless another worker is doing so.
    ///
    /// - `tokens`: one batch ticket is appended for each lane that received frames.
    /// - `fill`: has exclusive access to the source; takes at most [`FrameIntake::room`] frames from it
    ///   and pushes them.
    pub fn admit<'a>(
        &'a self,
        tokens: &mut Vec<BatchTicket<'a>>,
        fill: impl FnOnce(&mut R, &mut FrameIntake<'a>),
    ) -> Admission {
        let Some(mut guard) = self.ingress.try_lock() else { return Admission::Busy };
        let Some(source) = guard.get() else { return Admission::Busy };
        // Dropped before the lock is released, even if `fill` panics.
        let mut intake = FrameIntake::new(&self.lanes);
        fill(source, &mut intake);
        let before = tokens.len();
        intake.issue(|token| tokens.push(token));
        Admission::Issued(tokens.len() - before)
    }

    /// Delivers what is ready. If another worker is doing so, that worker delivers everything
    /// published before this call.
    ///
    /// Call it after publishing or dropping a batch ticket, and periodically if stuck workers must
    /// be detected while no frames arrive.
    ///
    /// - `now_ns`: a clock that all callers share.
    pub fn drain(&self, now_ns: u64) -> Drained {
        let mut drained = Drained::default();
        loop {
            // Publish first, then try the lock: either it is free, or its holder is notified and
            // finds what was published.
            let Some(mut guard) = self.egress.lock_or_notify() else { return drained };
            let Some(sink) = guard.get() else { return drained };
            let before = drained;
            let mut has_room = true;
            for lane in &self.lanes {
                let end = lane.drain(sink, now_ns, self.stuck_after_ns, &mut drained);
                has_room &= end == DrainEnd::Empty;
            }
            if drained != before {
                sink.flush();
            }
            let is_asked = guard.unlock() && sync::RECHECK;
            if !is_asked || !has_room || !self.lanes.iter().any(Lane::has_work) {
                return drained;
            }
        }
    }

    /// Runs `upkeep` on the sink (reclaiming sent frames, sending queued ones), unless another
    /// worker holds the egress lock. Returns true if it ran.
    ///
    /// A batch ticket published during this call finds the lock held: call [`Self::drain`]
    /// afterwards.
    pub fn visit(&self, upkeep: impl FnOnce(&mut X)) -> bool {
        let Some(mut guard) = self.egress.try_lock() else { return false };
        let Some(sink) = guard.get() else { return false };
        upkeep(sink);
        true
    }

    /// Counters of all lanes.
    pub fn counters(&self) -> OrderCounters {
        let mut books = OrderCounters::default();
        for lane in &self.lanes {
            let (tail, head) = (&lane.tail.0, &lane.head.0);
            books.admitted_frames += tail.admitted_frames.get();
            books.forwarded_frames += head.forwarded_frames.get();
            books.dropped_frames += head.dropped_frames.get();
            books.late_frames += head.late_frames.get();
            books.undelivered_frames += head.undelivered_frames.get();
            books.ticket_count += tail.ticket_count.get();
            books.hole_count += head.hole_count.get();
            books.timed_out_count += head.timed_out_count.get();
            books.skipped_count += tail.skipped_count.get();
            books.refused_count += tail.refused_count.get();
        }
        books
    }

    /// Frames admitted so far if all of them have been delivered; `None` if some are in flight.
    pub fn settled_frames(&self) -> Option<u64> {
        self.lanes.iter().try_fold(0, |sum, lane| {
            let admitted = lane.tail.0.admitted_frames.get();
            let head = &lane.head.0;
            let delivered = head.forwarded_frames.get()
                + head.dropped_frames.get()
                + head.late_frames.get()
                + head.undelivered_frames.get();
            (delivered >= admitted).then_some(sum + admitted)
        })
    }

    /// The source and the sink. The borrow checker ensures that all workers have finished.
    pub fn into_parts(self) -> (R, X) {
        (self.ingress.into_inner(), self.egress.into_inner())
    }
}

/// Lane of a flow: all frames of a flow share one lane, and therefore one order.
///
/// - `flow_hash`: see `wire::flow`; its upper bits select the lane.
/// - Returns a number below `lanes`, or 0 when that is 0.
pub fn lane_index(flow_hash: u32, lanes: usize) -> usize {
    ((u64::from(flow_hash) * lanes as u64) >> 32) as usize
}
