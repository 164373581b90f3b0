//! A lane: one ordered sequence of tickets, from its tail (next to issue) to its head (next to
//! deliver).

use std::sync::atomic;

use super::slot::{Mark, SlotPhase, TicketSlot};
use super::sync::{AtomicU64, Ordering};

/// Padded to cache lines of its own, so that writes of one side do not slow the other.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

/// Counter written under one lock and readable by any thread. Not part of the protocol, so the
/// model checker does not step through it.
#[derive(Debug)]
pub(super) struct Count(atomic::AtomicU64);

impl Count {
    pub(super) fn new() -> Count {
        Count(atomic::AtomicU64::new(0))
    }

    pub(super) fn add(&self, more: u64) {
        self.0.store(self.get().wrapping_add(more), atomic::Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, atomic::Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(atomic::Ordering::Relaxed)
    }
}

/// State protected by the ingress lock.
#[derive(Debug)]
pub(super) struct LaneTail {
    /// Next ticket to issue.
    pub(super) ticket: AtomicU64,
    /// Head as last read; read again only when the window appears full.
    pub(super) head_seen: Count,
    pub(super) admitted_frames: Count,
    pub(super) ticket_count: Count,
    pub(super) refused_count: Count,
    pub(super) skipped_count: Count,
}

/// State protected by the egress lock.
#[derive(Debug)]
pub(super) struct Head {
    /// Next ticket to deliver.
    pub(super) ticket: AtomicU64,
    /// Number of the blocking ticket plus one; 0 for none.
    pub(super) stuck_ticket: Count,
    pub(super) stuck_since_ns: Count,
    pub(super) forwarded_frames: Count,
    pub(super) dropped_frames: Count,
    pub(super) late_frames: Count,
    pub(super) undelivered_frames: Count,
    pub(super) hole_count: Count,
    pub(super) timed_out_count: Count,
}

#[derive(Debug)]
pub(super) struct Lane {
    slots: Box<[TicketSlot]>,
    pub(super) tail: Apart<LaneTail>,
    pub(super) head: Apart<Head>,
    /// Slots with late frames that have not been collected yet.
    late_count: AtomicU64,
}

/// State of the ticket at the head of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadState {
    /// Published: its frames can be delivered.
    Ready,
    /// Issued, not published yet.
    Waiting,
    /// The ticket was never issued: its slot was in use by a ticket that timed out.
    Skipped,
    /// No ticket is outstanding.
    Idle,
}

impl Lane {
    /// - `window_tickets`: a power of two.
    pub(super) fn new(window_tickets: usize) -> Lane {
        Lane {
            slots: (0..window_tickets).map(|_| TicketSlot::new()).collect(),
            tail: Apart(LaneTail {
                ticket: AtomicU64::new(0),
                head_seen: Count::new(),
                admitted_frames: Count::new(),
                ticket_count: Count::new(),
                refused_count: Count::new(),
                skipped_count: Count::new(),
            }),
            head: Apart(Head {
                ticket: AtomicU64::new(0),
                stuck_ticket: Count::new(),
                stuck_since_ns: Count::new(),
                forwarded_frames: Count::new(),
                dropped_frames: Count::new(),
                late_frames: Count::new(),
                undelivered_frames: Count::new(),
                hole_count: Count::new(),
                timed_out_count: Count::new(),
            }),
            late_count: AtomicU64::new(0),
        }
    }

    pub(super) fn slots(&self) -> &[TicketSlot] {
        &self.slots
    }

    pub(super) fn slot(&self, ticket: u64) -> &TicketSlot {
        // The length is a power of two.
        &self.slots[ticket as usize & (self.slots.len() - 1)]
    }

    pub(super) fn window_tickets(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Next ticket to deliver; the slots of all earlier tickets can be reused.
    pub(super) fn head_ticket(&self) -> u64 {
        self.head.0.ticket.load(Ordering::Acquire)
    }

    pub(super) fn set_head(&self, ticket: u64) {
        self.head.0.ticket.store(ticket, Ordering::Release);
    }

    /// Next ticket to issue; all lower ones are marked in their slots.
    pub(super) fn tail_ticket(&self) -> u64 {
        self.tail.0.ticket.load(Ordering::Acquire)
    }

    /// Ingress: publishes that all tickets below `ticket` have been issued.
    pub(super) fn set_tail(&self, ticket: u64) {
        self.tail.0.ticket.store(ticket, Ordering::Release);
    }

    /// Worker: one more slot holds late frames.
    pub(super) fn say_late(&self) {
        self.late_count.fetch_add(1, Ordering::Release);
    }

    /// Egress: one slot of late frames has been emptied.
    pub(super) fn less_late(&self) {
        self.late_count.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn has_late(&self) -> bool {
        self.late_count.load(Ordering::Acquire) > 0
    }

    /// State of the ticket at `head`.
    pub(super) fn look(&self, head: u64) -> HeadState {
        let slot = self.slot(head);
        if let Some(look) = marked(slot.mark(), head) {
            return look;
        }
        if head >= self.tail_ticket() {
            return HeadState::Idle;
        }
        // The ticket has been issued, so by now its slot is marked, unless the number was skipped.
        marked(slot.mark(), head).unwrap_or(HeadState::Skipped)
    }
}

/// State of a ticket by the mark of its slot; `None` if the mark is another ticket's.
fn marked(mark: Mark, ticket: u64) -> Option<HeadState> {
    if mark.is(ticket, SlotPhase::Ready) {
        Some(HeadState::Ready)
    } else {
        mark.is(ticket, SlotPhase::Taken).then_some(HeadState::Waiting)
    }
}
