//! Asking for what is missing: MoldUDP64 re-requests as a state machine without clock or socket.
//!
//! Told of gaps and of the time, [`Recovery::poll`] says what to ask for. A request names a
//! first sequence and a count; the server answers with as many messages as one packet holds.
//! What it left out is asked for at once, what is not answered again after a time that doubles,
//! and after [`Limits::attempts`] requests without any answer it is given up.
//!
//! Source: MoldUDP64 protocol specification 1.00, request packet.

use std::ops::AddAssign;

use wire::mold;

/// How much is asked for, how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages that one request asks for, at most.
    pub request_messages: u16,
    /// Requests that wait for an answer at once.
    pub outstanding: usize,
    /// Time until the first repetition.
    pub retry_ns: u64,
    /// Longest time until a repetition, however often it doubled.
    pub retry_max_ns: u64,
    /// Requests for the same messages without any answer, before they are given up.
    pub attempts: u32,
    /// Pieces that are wanted at once; what would be one more is refused.
    pub pieces: usize,
}

impl Default for Limits {
    /// 256 messages a request, 4 at once; again after 10, 20, 40 … 200 ms, 6 times in all.
    fn default() -> Self {
        Limits {
            request_messages: 256,
            outstanding: 4,
            retry_ns: 10_000_000,
            retry_max_ns: 200_000_000,
            attempts: 6,
            pieces: 1024,
        }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a request.
    Request(Request),
    /// These messages will not come any more.
    GaveUp {
        /// Sequence of the first.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// A request packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Session that misses them.
    pub session: mold::Session,
    /// Sequence of the first message wanted.
    pub first: u64,
    /// How many.
    pub count: u16,
}

impl Request {
    /// The packet's bytes.
    pub fn to_bytes(&self) -> [u8; mold::HEADER_BYTES] {
        let mut bytes = [0; mold::HEADER_BYTES];
        let header =
            mold::Header { session: self.session, sequence: self.first, count: self.count };
        let written = header.write(&mut bytes);
        debug_assert!(written.is_ok(), "as long as a header");
        bytes
    }
}

/// What was wanted, and what came of it; in messages unless they say otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Wanted, each once.
    pub wanted: u64,
    /// Brought by an answer.
    pub recovered: u64,
    /// Brought by a line after all.
    pub filled: u64,
    /// Given up.
    pub given_up: u64,
    /// Not asked for: too many pieces.
    pub refused: u64,
    /// Brought by an answer although not, or no longer, wanted.
    pub strays: u64,
    /// Requests.
    pub requests: u64,
    /// Requests for what had been asked for and not been answered.
    pub retries: u64,
    /// Answers.
    pub replies: u64,
    /// Answers of another session.
    pub foreign: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.wanted += more.wanted;
        self.recovered += more.recovered;
        self.filled += more.filled;
        self.given_up += more.given_up;
        self.refused += more.refused;
        self.strays += more.strays;
        self.requests += more.requests;
        self.retries += more.retries;
        self.replies += more.replies;
        self.foreign += more.foreign;
    }
}

/// Consecutive messages that are wanted.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: u64,
    /// One past the last.
    end: u64,
    attempts: u32,
    /// When to ask, or to ask again.
    due_ns: u64,
}

/// What is missing of one session.
///
/// Nothing is allocated after [`Recovery::new`].
#[derive(Debug)]
pub struct Recovery {
    session: mold::Session,
    limits: Limits,
    /// Ascending, apart from each other, none longer than a request.
    pieces: Vec<Piece>,
    counts: Counts,
}

impl Recovery {
    /// Nothing is missing yet.
    pub fn new(session: mold::Session, limits: Limits) -> Self {
        let limits = Limits {
            request_messages: limits.request_messages.clamp(1, mold::MAX_COUNT),
            outstanding: limits.outstanding.max(1),
            retry_ns: limits.retry_ns.max(1),
            retry_max_ns: limits.retry_max_ns.max(limits.retry_ns),
            attempts: limits.attempts.max(1),
            pieces: limits.pieces.max(1),
        };
        let pieces = Vec::with_capacity(limits.pieces);
        Recovery { session, limits, pieces, counts: Counts::default() }
    }

    /// Messages are missing. Those that are wanted already are not wanted twice.
    pub fn gap(&mut self, first: u64, count: u64, now_ns: u64) {
        let end = first.saturating_add(count);
        let mut from = first;
        // Where the first piece that ends behind `from` is.
        let mut at = self.pieces.partition_point(|piece| piece.end <= from);
        while from < end {
            let next = self.pieces.get(at).copied();
            let free_end = next.map_or(end, |piece| piece.first.min(end));
            while from < free_end {
                if self.pieces.len() == self.limits.pieces {
                    self.counts.wanted += free_end - from;
                    self.counts.refused += free_end - from;
                    from = free_end;
                    break;
                }
                let to = free_end.min(from.saturating_add(self.limits.request_messages.into()));
                self.counts.wanted += to - from;
                let piece = Piece { first: from, end: to, attempts: 0, due_ns: now_ns };
                self.pieces.insert(at, piece);
                at += 1;
                from = to;
            }
            let Some(piece) = next else { break };
            from = from.max(piece.end);
            at += 1;
        }
    }

    /// A line brought a message after all.
    pub fn received(&mut self, sequence: u64) {
        self.counts.filled += self.remove(sequence, sequence.saturating_add(1), None);
    }

    /// An answer, whose messages are all there; what it left out of what was asked for is due
    /// now. Returns how many of them were wanted.
    ///
    /// Heartbeats and the end of the session are no answers: they hold no messages.
    pub fn reply(&mut self, header: &mold::Header, now_ns: u64) -> u64 {
        if header.session != self.session {
            self.counts.foreign += 1;
            return 0;
        }
        let (first, count) = (header.sequence, header.message_count());
        if count == 0 {
            return 0;
        }
        self.counts.replies += 1;
        let end = first.saturating_add(count.into());
        let recovered = self.remove(first, end, Some(now_ns));
        self.counts.recovered += recovered;
        self.counts.strays += u64::from(count) - recovered;
        recovered
    }

    /// What is due, one thing at a time; none when nothing is.
    pub fn poll(&mut self, now_ns: u64) -> Option<Action> {
        let at = self.next(now_ns)?;
        let piece = &mut self.pieces[at];
        let (first, count) = (piece.first, piece.end - piece.first);
        if piece.attempts >= self.limits.attempts {
            self.pieces.remove(at);
            self.counts.given_up += count;
            return Some(Action::GaveUp { first, count });
        }
        let doubled = self.limits.retry_ns.saturating_mul(1 << piece.attempts.min(32));
        self.counts.requests += 1;
        self.counts.retries += u64::from(piece.attempts > 0);
        piece.attempts += 1;
        piece.due_ns = now_ns.saturating_add(doubled.min(self.limits.retry_max_ns));
        // A piece is never longer than a request.
        Some(Action::Request(Request { session: self.session, first, count: count as u16 }))
    }

    /// When [`Recovery::poll`] has something next, if no answer comes before: `now_ns` if it
    /// has it now. `None` while nothing is wanted.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        if self.next(now_ns).is_some() {
            return Some(now_ns);
        }
        // What is due and has to wait does so for those that are not due yet.
        self.pieces.iter().map(|piece| piece.due_ns).filter(|due| *due > now_ns).min()
    }

    /// The piece that there is something to do about.
    fn next(&self, now_ns: u64) -> Option<usize> {
        let waiting = |piece: &&Piece| piece.attempts > 0 && piece.due_ns > now_ns;
        let has_room = self.pieces.iter().filter(waiting).count() < self.limits.outstanding;
        self.pieces.iter().position(|piece| {
            piece.due_ns <= now_ns && (has_room || piece.attempts >= self.limits.attempts)
        })
    }

    /// Messages that are wanted now.
    pub fn open(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.first).sum()
    }

    /// What came of it so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether all that was wanted is accounted for.
    pub fn balances(&self) -> bool {
        let Counts { wanted, recovered, filled, given_up, refused, .. } = self.counts;
        wanted == recovered + filled + given_up + refused + self.open()
    }

    /// No longer wants those from `first` to before `end`; how many were wanted. With a time it
    /// is an answer: what it left out of a request is due then.
    fn remove(&mut self, first: u64, end: u64, answered_ns: Option<u64>) -> u64 {
        let mut at = self.pieces.partition_point(|piece| piece.end <= first);
        let mut removed = 0;
        while let Some(piece) = self.pieces.get_mut(at).filter(|piece| piece.first < end) {
            let whole = *piece;
            let (from, to) = (whole.first.max(first), whole.end.min(end));
            removed += to - from;
            match (from > whole.first, to < whole.end) {
                (false, false) => {
                    self.pieces.remove(at);
                    continue;
                }
                (false, true) => {
                    piece.first = to;
                    if let Some(now_ns) = answered_ns {
                        // The server is there; it had no more room in the packet.
                        (piece.attempts, piece.due_ns) = (0, now_ns);
                    }
                }
                (true, false) => piece.end = from,
                (true, true) => {
                    piece.end = from;
                    if self.pieces.len() < self.limits.pieces {
                        self.pieces.insert(at + 1, Piece { first: to, ..whole });
                    } else {
                        // No room for a second piece: its messages are refused after all.
                        self.counts.refused += whole.end - to;
                    }
                }
            }
            at += 1;
        }
        removed
    }
}
