//! The right, and the duty, to settle one ticket.

use super::frame::Frame;
use super::lane::Lane;

/// What a worker decides about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, perhaps moved in its buffer.
    Forward(Frame),
    /// It does not; its buffer is recycled when its turn comes.
    Drop,
}

/// One ticket with its frames, up to [`super::BATCH_FRAMES_MAX`].
///
/// Cannot be copied. Dropped without [`Token::publish`] (by `?`, `return` or a panic), it
/// settles its ticket with all frames dropped: the order goes on without them, and their
/// buffers come out at the egress to be recycled. Only a token that is neither published nor
/// dropped holds the order up, and that until the time-out.
///
/// After either, someone has to call [`super::Order::drain`]; every worker does so each turn.
#[derive(Debug)]
#[must_use = "a token that is dropped drops its frames"]
pub struct Token<'a> {
    lane: &'a Lane,
    ticket: u64,
    len: usize,
    dropped: u64,
}

impl<'a> Token<'a> {
    pub(super) fn new(lane: &'a Lane, ticket: u64, len: usize) -> Token<'a> {
        Token { lane, ticket, len, dropped: 0 }
    }

    /// Place of this ticket in its lane's order; some numbers may never be given out.
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// How many frames there are, at least one.
    #[allow(clippy::len_without_is_empty, reason = "no token is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The frame at `at`, in order of arrival; `None` beyond the last.
    pub fn frame(&self, at: usize) -> Option<Frame> {
        (at < self.len).then(|| self.lane.slot(self.ticket).frame(at))
    }

    /// Has every frame judged, in order of arrival.
    ///
    /// A frame that was dropped before is not asked about again.
    pub fn judge(&mut self, mut judge: impl FnMut(Frame) -> Verdict) {
        let slot = self.lane.slot(self.ticket);
        for (at, place) in slot.places(self.len).enumerate() {
            if self.dropped & 1 << at != 0 {
                continue;
            }
            match judge(place.frame()) {
                // Written even when nothing has changed: a store is cheaper than to look.
                Verdict::Forward(judged) => place.set(judged),
                Verdict::Drop => self.dropped |= 1 << at,
            }
        }
    }

    /// Says that the frames may go when their turn comes.
    ///
    /// Returns whether the turn was still to come. If not, because the worker was taken for
    /// stuck, nothing of it is forwarded: the frames come out as late.
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

impl Drop for Token<'_> {
    fn drop(&mut self) {
        // Zero after `publish`.
        if self.len > 0 {
            self.dropped = u64::MAX;
            self.settle();
        }
    }
}
