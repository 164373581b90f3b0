//! The slots of a lane: where a ticket's frames wait for their turn.
//!
//! A slot's word holds the ticket that it is for and the phase that the ticket is in:
//!
//! ```text
//!  ingress gate           token                 egress gate
//!  ------------ taken --- publish, drop ---> ready --- let out, head moves past
//!                 |
//!                 '------ time-out (egress) -> passed --- publish, drop ---> late
//!                                                           collected (egress) ---> free
//! ```
//!
//! The frames in a slot belong to the token until the word says ready or late, and to the
//! egress gate from then on. A slot that was passed keeps its worker's frames and is left out
//! by the ingress until the worker has come back: a worker that never does costs one slot.

use super::frame::Frame;
use super::sync::{AtomicU64, BATCH_FRAMES_MAX, Ordering, PUBLISH};

/// Where a ticket is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Phase {
    /// For nobody.
    Free = 0,
    /// A worker has the token.
    Taken = 1,
    /// Waits for its turn.
    Ready = 2,
    /// Its turn has gone by; the worker still has the token.
    Passed = 3,
    /// The worker has come back too late; its frames wait to be collected.
    Late = 4,
}

const PHASE_BITS: u32 = 3;
/// Ticket of slots that never had one.
const NEVER: u64 = u64::MAX >> PHASE_BITS;

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Slot {
    word: AtomicU64,
    len: AtomicU64,
    dropped: AtomicU64,
    frames: [AtomicU64; BATCH_FRAMES_MAX],
}

/// What a slot says about a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    ticket: u64,
    phase: u64,
}

impl Mark {
    pub(super) fn is(self, ticket: u64, phase: Phase) -> bool {
        self.ticket == ticket && self.phase == phase as u64
    }

    /// Whether a worker that was passed still has the slot's frames, or nobody has collected
    /// them yet.
    pub(super) fn is_lost(self) -> bool {
        self.phase == Phase::Passed as u64 || self.is_late()
    }

    pub(super) fn is_late(self) -> bool {
        self.phase == Phase::Late as u64
    }
}

fn word(ticket: u64, phase: Phase) -> u64 {
    ticket << PHASE_BITS | phase as u64
}

impl Slot {
    pub(super) fn new() -> Slot {
        Slot {
            word: AtomicU64::new(word(NEVER, Phase::Free)),
            len: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            frames: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// What the slot says; everything written before that was said can be seen from now on.
    pub(super) fn mark(&self) -> Mark {
        let word = self.word.load(Ordering::Acquire);
        Mark { ticket: word >> PHASE_BITS, phase: word & ((1 << PHASE_BITS) - 1) }
    }

    /// Ingress: the slot is for `ticket` now. Made visible by the lane's tail.
    pub(super) fn take(&self, ticket: u64) {
        self.word.store(word(ticket, Phase::Taken), Ordering::Relaxed);
    }

    /// Token: ready, or late if its turn has gone by. Returns whether it was in time.
    pub(super) fn publish(&self, ticket: u64, len: usize, dropped: u64) -> bool {
        self.len.store(len as u64, Ordering::Relaxed);
        self.dropped.store(dropped, Ordering::Relaxed);
        let (taken, ready) = (word(ticket, Phase::Taken), word(ticket, Phase::Ready));
        let in_time = self.word.compare_exchange(taken, ready, PUBLISH, Ordering::Relaxed).is_ok();
        if !in_time {
            self.word.store(word(ticket, Phase::Late), Ordering::Release);
        }
        in_time
    }

    /// Egress: waits no longer. Fails when the token has been published meanwhile.
    pub(super) fn pass(&self, ticket: u64) -> bool {
        let (taken, passed) = (word(ticket, Phase::Taken), word(ticket, Phase::Passed));
        self.word.compare_exchange(taken, passed, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Egress: late frames have been collected.
    pub(super) fn free(&self) {
        self.word.store(word(NEVER, Phase::Free), Ordering::Release);
    }

    /// How many frames there are, and which of them are dropped, by bits.
    pub(super) fn contents(&self) -> (usize, u64) {
        let len = self.len.load(Ordering::Relaxed) as usize;
        (len.min(BATCH_FRAMES_MAX), self.dropped.load(Ordering::Relaxed))
    }

    /// The places of the first `len` frames: looked up once a batch, not once a frame.
    pub(super) fn places(&self, len: usize) -> impl Iterator<Item = Place<'_>> {
        self.frames.iter().take(len).map(Place)
    }

    /// The words of the places from `from` to before `to`; none when there are not so many.
    pub(super) fn between(&self, from: u8, to: u8) -> std::slice::Iter<'_, AtomicU64> {
        self.frames.get(from.into()..to.into()).unwrap_or(&[]).iter()
    }

    /// The frame at `at`, below [`BATCH_FRAMES_MAX`].
    pub(super) fn frame(&self, at: usize) -> Frame {
        Place(&self.frames[at]).frame()
    }

    pub(super) fn set_frame(&self, at: usize, frame: Frame) {
        Place(&self.frames[at]).set(frame);
    }
}

/// Where a frame stands in a slot.
#[derive(Clone, Copy)]
pub(super) struct Place<'a>(&'a AtomicU64);

impl Place<'_> {
    #[inline]
    pub(super) fn frame(self) -> Frame {
        Frame::from_word(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn set(self, frame: Frame) {
        self.0.store(frame.to_word(), Ordering::Relaxed);
    }
}
