//! A batch ticket: a worker's exclusive right to one ticket and its frames.

use super::frame::Frame;
use super::lane::Lane;

/// Decision of a worker about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameVerdict {
    /// Forwarded, possibly moved in its buffer.
    Forward(Frame),
    /// Dropped; the buffer is recycled in its turn.
    Drop,
}

/// One ticket with its frames, up to [`super::BATCH_FRAMES_MAX`].
///
/// Cannot be copied. If it goes out of scope without [`BatchTicket::publish`] (`?`, `return` or a
/// panic), all its frames count as dropped: the order continues without them, and the egress
/// recycles their buffers. Only a batch ticket that is neither published nor dropped blocks the
/// order, until it times out.
///
/// In both cases call [`super::Order::drain`] afterwards; every worker does so each round.
#[derive(Debug)]
#[must_use = "a batch ticket that is dropped drops its frames"]
pub struct BatchTicket<'a> {
    lane: &'a Lane,
    ticket: u64,
    len: usize,
    dropped: u64,
}

impl<'a> BatchTicket<'a> {
    pub(super) fn new(lane: &'a Lane, ticket: u64, len: usize) -> BatchTicket<'a> {
        BatchTicket { lane, ticket, len, dropped: 0 }
    }

    /// Position of this ticket in its lane's order; some numbers may be skipped.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Number of frames, at least one.
    #[allow(clippy::len_without_is_empty, reason = "no batch ticket is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Frame number `at` in order of arrival; `None` beyond the last.
    pub fn frame(&self, at: usize) -> Option<Frame> {
        (at < self.len).then(|| self.lane.slot(self.ticket).frame(at))
    }

    /// Calls `judge` for every frame in order of arrival, except those dropped by an earlier call.
    pub fn judge(&mut self, mut judge: impl FnMut(Frame) -> FrameVerdict) {
        let slot = self.lane.slot(self.ticket);
        for (at, place) in slot.places(self.len).enumerate() {
            if self.dropped & 1 << at != 0 {
                continue;
            }
            match judge(place.frame()) {
                // Written even if unchanged: a store is cheaper than a comparison.
                FrameVerdict::Forward(judged) => place.set(judged),
                FrameVerdict::Drop => self.dropped |= 1 << at,
            }
        }
    }

    /// Releases the frames for delivery in their turn.
    ///
    /// Returns false if the ticket has timed out; its frames are then recycled as late.
    pub fn publish(mut self) -> bool {
        self.settle()
    }

    fn settle(&mut self) -> bool {
        let len = std::mem::take(&mut self.len);
        let in_time = self.lane.slot(self.ticket).publish(self.ticket, len, self.dropped);
        if !in_time {
            self.lane.say_late();
        }
        in_time
    }
}

impl Drop for BatchTicket<'_> {
    fn drop(&mut self) {
        // Zero after `publish`.
        if self.len > 0 {
            self.dropped = u64::MAX;
            self.settle();
        }
    }
}
