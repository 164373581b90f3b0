//! Order restoration: frames are taken in by tickets, worked on by whoever has the token, and
//! let out in the order of the tickets.
//!
//! One [`Order`] stands between a source that one worker at a time reads and a sink that one
//! worker at a time writes. Every worker runs the same loop and needs no other thread:
//!
//! ```text
//! admit    try the ingress gate; take up to 64 frames of the source; draw a ticket
//! judge    alone with the token: encapsulate, police, drop
//! publish  or let the token drop: its ticket becomes a hole, and holds up nobody
//! drain    try the egress gate; let out what is ready, in order; look once more
//! ```
//!
//! - Nobody waits for a gate: who finds it closed goes on, and who has it does the work.
//! - The window bounds how far ahead of the head tickets are drawn; then intake is refused and
//!   the source fills up, which is the back-pressure.
//! - A worker that keeps its token is waited for as long as it holds up others for
//!   `stuck_after_ns`; then its turn is passed, counted, and what it brings later is recycled
//!   as late, never forwarded out of order.
//! - A **lane** is a domain of order: one for a port, or several among which flows are spread
//!   by their hash, so that a slow ticket holds up its lane alone.
//!
//! Time comes from the caller; there is no clock, no wait, and after [`Order::new`] no
//! allocation in here.

mod egress;
mod frame;
mod gate;
mod lane;
mod slot;
mod ticket;
mod token;

use super::sync;

pub use egress::{Drained, Recycled, Sink};
pub use frame::{FRAME_COUNT_MAX, Frame};
pub use ticket::{Filler, Intake};
pub use token::{Token, Verdict};

use egress::End;
use gate::Gate;
use lane::Lane;

/// Frames that one ticket covers at most.
pub const BATCH_FRAMES_MAX: usize = sync::BATCH_FRAMES_MAX;
/// Lanes at most.
pub const LANE_COUNT_MAX: usize = 16;
/// Tickets that may be out at most.
pub const WINDOW_TICKETS_MAX: usize = 1 << 16;

/// What an [`Order`] is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderSpec {
    /// Domains of order, 1 to [`LANE_COUNT_MAX`].
    pub lanes: usize,
    /// Tickets of a lane that may be out, a power of two from 2 to [`WINDOW_TICKETS_MAX`].
    pub window_tickets: usize,
    /// How long a token may hold up others, in nanoseconds.
    pub stuck_after_ns: u64,
}

/// Why there is no such [`Order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// No lanes, or too many.
    #[error("{found} order lanes; give 1 to {LANE_COUNT_MAX}")]
    Lanes {
        /// Lanes asked for.
        found: usize,
    },
    /// The window is no power of two, or out of range.
    #[error(
        "an order window of {found} tickets; give a power of two from 2 to {WINDOW_TICKETS_MAX}"
    )]
    Window {
        /// Tickets asked for.
        found: usize,
    },
}

/// How an attempt to take frames in ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Another worker has the ingress gate.
    Busy,
    /// The gate was free; so many tickets were drawn, perhaps none.
    Issued(usize),
}

/// Books of an [`Order`], in frames and tickets since it was made.
///
/// Each is counted by one side under its gate; read while others work, the numbers may be a
/// moment apart from each other.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Books {
    /// Frames taken in.
    pub admitted_frames: u64,
    /// Frames sent on.
    pub forwarded_frames: u64,
    /// Frames that a worker dropped, or whose token was dropped.
    pub dropped_frames: u64,
    /// Frames of workers that were passed, once they came back.
    pub late_frames: u64,
    /// Frames lost in a sink that panicked.
    pub undelivered_frames: u64,
    /// Tickets drawn.
    pub ticket_count: u64,
    /// Tickets that came out with nothing to send.
    pub hole_count: u64,
    /// Tickets that were not waited for any longer.
    pub passed_count: u64,
    /// Ticket numbers that nobody got, because a passed worker still had the slot.
    pub skipped_count: u64,
    /// Times that a lane's window was found full.
    pub refused_count: u64,
}

impl Books {
    /// Frames taken in that have not come out: in slots, or with workers.
    pub fn in_flight_frames(&self) -> u64 {
        let out = self.forwarded_frames
            + self.dropped_frames
            + self.late_frames
            + self.undelivered_frames;
        self.admitted_frames.saturating_sub(out)
    }
}

/// A source, a sink, and the order between them. See the [module](self).
#[derive(Debug)]
pub struct Order<R, X> {
    lanes: Box<[Lane]>,
    ingress: Gate<R>,
    egress: Gate<X>,
    stuck_after_ns: u64,
}

impl<R, X: Sink> Order<R, X> {
    /// An order with nothing in it. All memory that it ever needs is allocated here: about
    /// 600 bytes a ticket.
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
            ingress: Gate::new(source),
            egress: Gate::new(sink),
            stuck_after_ns,
        })
    }

    /// Takes frames of the source in, unless another worker is at it.
    ///
    /// - `tokens`: gets one token for each lane that got frames; what was in it stays.
    /// - `fill`: has the source to itself while it runs; takes at most [`Intake::room`] frames
    ///   of it and pushes them.
    pub fn admit<'a>(
        &'a self,
        tokens: &mut Vec<Token<'a>>,
        fill: impl FnOnce(&mut R, &mut Intake<'a>),
    ) -> Admission {
        let Some(mut gate) = self.ingress.try_enter() else { return Admission::Busy };
        let Some(source) = gate.get() else { return Admission::Busy };
        // Dropped before the gate opens, also by a panic of `fill`.
        let mut intake = Intake::new(&self.lanes);
        fill(source, &mut intake);
        let before = tokens.len();
        intake.issue(|token| tokens.push(token));
        Admission::Issued(tokens.len() - before)
    }

    /// Lets out what is ready, unless another worker is at it; that worker then sees to what
    /// was published before this call.
    ///
    /// To be called after every token that was published or dropped, and now and then by
    /// somebody if stuck workers are to be noticed while no frames come.
    ///
    /// - `now_ns`: any clock that all callers share.
    pub fn drain(&self, now_ns: u64) -> Drained {
        let mut drained = Drained::default();
        loop {
            // The publishing before, then the trying of the gate: either we find it open, or who
            // has it hears our knock and finds what we published.
            let Some(mut gate) = self.egress.enter_or_knock() else { return drained };
            let Some(sink) = gate.get() else { return drained };
            let before = drained;
            let mut has_room = true;
            for lane in &self.lanes {
                let end = lane.drain(sink, now_ns, self.stuck_after_ns, &mut drained);
                has_room &= end == End::Empty;
            }
            if drained != before {
                sink.flush();
            }
            let is_asked = gate.leave() && sync::RECHECK;
            if !is_asked || !has_room || !self.lanes.iter().any(Lane::has_work) {
                return drained;
            }
        }
    }

    /// Does something with the sink, unless another worker has it: taking back what was sent,
    /// sending what had to wait. Returns whether it was done.
    ///
    /// A token that is published meanwhile finds the gate closed: call [`Self::drain`] after.
    pub fn visit(&self, upkeep: impl FnOnce(&mut X)) -> bool {
        let Some(mut gate) = self.egress.try_enter() else { return false };
        let Some(sink) = gate.get() else { return false };
        upkeep(sink);
        true
    }

    /// The books until now, of all lanes.
    pub fn books(&self) -> Books {
        let mut books = Books::default();
        for lane in &self.lanes {
            let (tail, head) = (&lane.tail.0, &lane.head.0);
            books.admitted_frames += tail.admitted_frames.get();
            books.forwarded_frames += head.forwarded_frames.get();
            books.dropped_frames += head.dropped_frames.get();
            books.late_frames += head.late_frames.get();
            books.undelivered_frames += head.undelivered_frames.get();
            books.ticket_count += tail.ticket_count.get();
            books.hole_count += head.hole_count.get();
            books.passed_count += head.passed_count.get();
            books.skipped_count += tail.skipped_count.get();
            books.refused_count += tail.refused_count.get();
        }
        books
    }

    /// Lanes that there are.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The source and the sink. All workers are done with it by then, the borrow checker says.
    pub fn into_parts(self) -> (R, X) {
        (self.ingress.into_inner(), self.egress.into_inner())
    }
}

/// Lane of a flow, so that all frames of a flow are in one order.
///
/// - `flow_hash`: see `wire::flow`; its upper bits choose.
/// - Returns a number below `lanes`, or 0 when that is 0.
pub fn lane_of(flow_hash: u32, lanes: usize) -> usize {
    ((u64::from(flow_hash) * lanes as u64) >> 32) as usize
}
