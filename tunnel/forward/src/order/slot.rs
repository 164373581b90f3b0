//! Slots of a lane, each holding the frames of one ticket until their turn.
//!
//! A slot's word holds its ticket and the phase of that ticket:
//!
//! ```text
//!  ingress lock           batch ticket          egress lock
//!  ------------ taken --- publish, drop ---> ready --- delivered, head moves on
//!                 |
//!                 '------ time-out (egress) -> timed out --- publish, drop ---> late
//!                                                           collected (egress) ---> free
//! ```
//!
//! The frames in a slot belong to the batch ticket until the word says ready or late, and to the
//! egress from then on. A slot that timed out keeps its worker's frames, and the ingress skips it
//! until the worker publishes. A worker that never publishes costs one slot.

use super::frame::Frame;
use super::sync::{AtomicU64, BATCH_FRAMES_MAX, Ordering, PUBLISH};

/// Phase of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum SlotPhase {
    Free = 0,
    /// A worker holds the batch ticket.
    Taken = 1,
    /// Published; waits for its turn.
    Ready = 2,
    /// Timed out; the worker still holds the batch ticket.
    TimedOut = 3,
    /// Published after the time-out; the frames wait to be collected.
    Late = 4,
}

const PHASE_BITS: u32 = 3;
/// Ticket number of a slot without a ticket.
const NEVER: u64 = u64::MAX >> PHASE_BITS;

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct TicketSlot {
    word: AtomicU64,
    len: AtomicU64,
    dropped: AtomicU64,
    frames: [AtomicU64; BATCH_FRAMES_MAX],
}

/// Ticket and phase of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    ticket: u64,
    phase: u64,
}

impl Mark {
    pub(super) fn is(self, ticket: u64, phase: SlotPhase) -> bool {
        self.ticket == ticket && self.phase == phase as u64
    }

    /// True if the slot's ticket timed out and its frames have not been collected yet.
    pub(super) fn is_lost(self) -> bool {
        self.phase == SlotPhase::TimedOut as u64 || self.is_late()
    }

    pub(super) fn is_late(self) -> bool {
        self.phase == SlotPhase::Late as u64
    }
}

fn word(ticket: u64, phase: SlotPhase) -> u64 {
    ticket << PHASE_BITS | phase as u64
}

impl TicketSlot {
    pub(super) fn new() -> TicketSlot {
        TicketSlot {
            word: AtomicU64::new(word(NEVER, SlotPhase::Free)),
            len: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            frames: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Current mark. Everything written before it was set is visible to the caller.
    pub(super) fn mark(&self) -> Mark {
        let word = self.word.load(Ordering::Acquire);
        Mark { ticket: word >> PHASE_BITS, phase: word & ((1 << PHASE_BITS) - 1) }
    }

    /// Ingress: assigns the slot to `ticket`. Made visible by the store to the lane's tail.
    pub(super) fn take(&self, ticket: u64) {
        self.word.store(word(ticket, SlotPhase::Taken), Ordering::Relaxed);
    }

    /// Worker: ready, or late after a time-out. Returns true if it was in time.
    pub(super) fn publish(&self, ticket: u64, len: usize, dropped: u64) -> bool {
        self.len.store(len as u64, Ordering::Relaxed);
        self.dropped.store(dropped, Ordering::Relaxed);
        let (taken, ready) = (word(ticket, SlotPhase::Taken), word(ticket, SlotPhase::Ready));
        let in_time = self.word.compare_exchange(taken, ready, PUBLISH, Ordering::Relaxed).is_ok();
        if !in_time {
            self.word.store(word(ticket, SlotPhase::Late), Ordering::Release);
        }
        in_time
    }

    /// Egress: times the ticket out. Returns false if it has just been published.
    pub(super) fn time_out(&self, ticket: u64) -> bool {
        let (taken, timed_out) =
            (word(ticket, SlotPhase::Taken), word(ticket, SlotPhase::TimedOut));
        self.word.compare_exchange(taken, timed_out, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Egress: late frames have been collected.
    pub(super) fn free(&self) {
        self.word.store(word(NEVER, SlotPhase::Free), Ordering::Release);
    }

    /// Number of frames, and a mask of the dropped ones.
    pub(super) fn contents(&self) -> (usize, u64) {
        let len = self.len.load(Ordering::Relaxed) as usize;
        (len.min(BATCH_FRAMES_MAX), self.dropped.load(Ordering::Relaxed))
    }

    /// Places of the first `len` frames: one bounds check per batch instead of one per frame.
    pub(super) fn places(&self, len: usize) -> impl Iterator<Item = FramePlace<'_>> {
        self.frames.iter().take(len).map(FramePlace)
    }

    /// Words of the places `from..to`; none if out of range.
    pub(super) fn between(&self, from: u8, to: u8) -> std::slice::Iter<'_, AtomicU64> {
        self.frames.get(from.into()..to.into()).unwrap_or(&[]).iter()
    }

    /// The frame at `at`, below [`BATCH_FRAMES_MAX`].
    pub(super) fn frame(&self, at: usize) -> Frame {
        FramePlace(&self.frames[at]).frame()
    }

    pub(super) fn set_frame(&self, at: usize, frame: Frame) {
        FramePlace(&self.frames[at]).set(frame);
    }
}

/// Place of a frame in a slot.
#[derive(Clone, Copy)]
pub(super) struct FramePlace<'a>(&'a AtomicU64);

impl FramePlace<'_> {
    #[inline]
    pub(super) fn frame(self) -> Frame {
        Frame::from_word(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set(self, frame: Frame) {
        self.0.store(frame.to_word(), Ordering::Relaxed);
    }
}
