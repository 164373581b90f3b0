//! Egress: the worker that holds the egress lock empties the ready slots in order.

use super::frame::Frame;
use super::lane::{HeadState, Lane};
use super::slot::TicketSlot;

/// Reason why a frame is recycled instead of forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recycled {
    /// Dropped by its worker, alone or with its batch ticket.
    Dropped,
    /// Published after its ticket had timed out.
    Late,
}

/// Receives the frames in order. Its methods are called only while the egress lock is held.
pub trait FrameSink {
    /// Number of frames that can be taken now. Tickets are delivered whole, so an empty sink must
    /// report room for [`super::BATCH_FRAMES_MAX`] frames or the order stalls.
    fn room_frames(&mut self) -> usize {
        usize::MAX
    }

    /// Sends a frame.
    fn forward(&mut self, frame: Frame);

    /// Reclaims the buffer of a frame.
    fn recycle(&mut self, frame: Frame, why: Recycled);

    /// Called before the lock is released, if anything was delivered.
    fn flush(&mut self) {}
}

/// Result of [`super::Order::drain`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Passed to the egress in order.
    pub forwarded_frames: u64,
    /// Returned to their pool without being sent.
    pub recycled_frames: u64,
    /// Tickets that timed out.
    pub timed_out_count: u64,
}

/// Reason for the end of one lane's drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DrainEnd {
    /// Nothing more is ready.
    Empty,
    /// The sink is full.
    NoRoom,
}

/// Counts the frames of a slot and frees the slot on drop: a sink that panics neither stops the
/// order nor receives a frame twice.
struct SlotDelivery<'a> {
    lane: &'a Lane,
    slot: &'a TicketSlot,
    /// Ticket of the slot; `None` if its frames are late.
    ticket: Option<u64>,
    frames: u64,
    forwarded_frames: u64,
    recycled_frames: u64,
}

impl<'a> SlotDelivery<'a> {
    fn new(lane: &'a Lane, slot: &'a TicketSlot, ticket: Option<u64>) -> SlotDelivery<'a> {
        let frames = slot.contents().0 as u64;
        SlotDelivery { lane, slot, ticket, frames, forwarded_frames: 0, recycled_frames: 0 }
    }

    fn run<S: FrameSink>(mut self, sink: &mut S, drained: &mut Drained) {
        let (len, dropped) = match self.ticket {
            Some(_) => self.slot.contents(),
            None => (self.slot.contents().0, u64::MAX),
        };
        let why = if self.ticket.is_some() { Recycled::Dropped } else { Recycled::Late };
        if dropped == 0 {
            // The usual case, without a bit test per frame.
            for place in self.slot.places(len) {
                sink.forward(place.frame());
                self.forwarded_frames += 1;
            }
            drained.forwarded_frames += self.forwarded_frames;
            return;
        }
        for (at, place) in self.slot.places(len).enumerate() {
            let frame = place.frame();
            if dropped & 1 << at == 0 {
                sink.forward(frame);
                self.forwarded_frames += 1;
            } else {
                sink.recycle(frame, why);
                self.recycled_frames += 1;
            }
        }
        drained.forwarded_frames += self.forwarded_frames;
        drained.recycled_frames += self.recycled_frames;
    }
}

impl Drop for SlotDelivery<'_> {
    fn drop(&mut self) {
        let books = &self.lane.head.0;
        let undelivered = self.frames - self.forwarded_frames - self.recycled_frames;
        if undelivered > 0 {
            books.undelivered_frames.add(undelivered);
        }
        match self.ticket {
            Some(ticket) => {
                books.forwarded_frames.add(self.forwarded_frames);
                books.dropped_frames.add(self.recycled_frames);
                if self.forwarded_frames == 0 {
                    books.hole_count.add(1);
                }
                self.lane.set_head(ticket + 1);
            }
            None => {
                books.late_frames.add(self.recycled_frames);
                self.slot.free();
                self.lane.less_late();
            }
        }
    }
}

impl Lane {
    /// Delivers everything that is ready, in order.
    pub(super) fn drain<S: FrameSink>(
        &self,
        sink: &mut S,
        now_ns: u64,
        stuck_after_ns: u64,
        drained: &mut Drained,
    ) -> DrainEnd {
        if self.has_late() {
            for slot in self.slots().iter().filter(|slot| slot.mark().is_late()) {
                if sink.room_frames() < slot.contents().0 {
                    return DrainEnd::NoRoom;
                }
                SlotDelivery::new(self, slot, None).run(sink, drained);
            }
        }
        loop {
            let head = self.head_ticket();
            let slot = self.slot(head);
            match self.look(head) {
                HeadState::Ready => {
                    if sink.room_frames() < slot.contents().0 {
                        return DrainEnd::NoRoom;
                    }
                    SlotDelivery::new(self, slot, Some(head)).run(sink, drained);
                }
                HeadState::Waiting if self.is_stuck(head, now_ns, stuck_after_ns) => {
                    // On failure it has just been published, and the next round finds it ready.
                    if slot.time_out(head) {
                        self.head.0.timed_out_count.add(1);
                        drained.timed_out_count += 1;
                        self.set_head(head + 1);
                    }
                }
                HeadState::Skipped => self.set_head(head + 1),
                HeadState::Waiting | HeadState::Idle => return DrainEnd::Empty,
            }
        }
    }

    /// True if the ticket at the head has blocked others for too long, counted from the first call
    /// that found others behind it.
    fn is_stuck(&self, head: u64, now_ns: u64, stuck_after_ns: u64) -> bool {
        if self.tail_ticket() <= head + 1 {
            return false;
        }
        let books = &self.head.0;
        // Plus one, so that 0 means no ticket.
        if books.stuck_ticket.get() != head + 1 {
            books.stuck_ticket.set(head + 1);
            books.stuck_since_ns.set(now_ns);
        }
        now_ns.saturating_sub(books.stuck_since_ns.get()) >= stuck_after_ns
    }

    /// True if `drain` would find something to deliver.
    pub(super) fn has_work(&self) -> bool {
        matches!(self.look(self.head_ticket()), HeadState::Ready | HeadState::Skipped)
    }
}
