//! MoldUDP64 re-requests of missing messages, as a state machine without clock or socket.
//!
//! Given gaps and the time, [`Recovery::poll`] returns the next request. A request names a first
//! sequence and a count; the server replies with as many messages as one packet holds. The rest
//! is requested at once. Requests without a reply are retried with exponential backoff, and
//! abandoned after [`RecoveryLimits::attempts`].
//!
//! Source: MoldUDP64 protocol specification 1.00, request packet.

use serde::Serialize;
use std::ops::AddAssign;

use market::mold;

/// Limits of requests and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryLimits {
    /// Largest number of messages per request.
    pub request_messages: u16,
    /// Largest number of outstanding requests.
    pub outstanding: usize,
    /// Time until the first retry.
    pub retry_ns: u64,
    /// Longest time until a retry.
    pub retry_max_ns: u64,
    /// Requests for the same messages without a reply before they are abandoned.
    pub attempts: u32,
    /// Largest number of missing ranges; further ones are refused.
    pub pieces: usize,
}

impl Default for RecoveryLimits {
    /// 256 messages per request, 4 outstanding, 6 attempts 10, 20, 40 … 200 ms apart.
    fn default() -> Self {
        RecoveryLimits {
            request_messages: 256,
            outstanding: 4,
            retry_ns: 10_000_000,
            retry_max_ns: 200_000_000,
            attempts: 6,
            pieces: 1024,
        }
    }
}

/// Action for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send a request.
    Request(RecoveryRequest),
    /// These messages are abandoned.
    GaveUp {
        /// First missing sequence.
        first: u64,
        count: u64,
    },
}

/// A request packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecoveryRequest {
    /// Session of the messages.
    pub session: mold::MoldSession,
    pub first: u64,
    pub count: u16,
}

impl RecoveryRequest {
    /// Bytes of the packet.
    pub fn to_bytes(&self) -> [u8; mold::HEADER_BYTES] {
        let mut bytes = [0; mold::HEADER_BYTES];
        let header =
            mold::MoldHeader { session: self.session, sequence: self.first, count: self.count };
        let written = header.write(&mut bytes);
        debug_assert!(written.is_ok(), "as long as a header");
        bytes
    }
}

/// Counters of recovery, in messages unless noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Missing messages, each counted once.
    #[serde(rename = "wanted_count")]
    pub wanted: u64,
    /// Received in a reply.
    #[serde(rename = "recovered_count")]
    pub recovered: u64,
    /// Received late on a line.
    #[serde(rename = "filled_by_a_line_count")]
    pub filled: u64,
    #[serde(rename = "given_up_count")]
    pub given_up: u64,
    /// Not requested: too many ranges.
    #[serde(rename = "refused_count")]
    pub refused: u64,
    /// Received in a reply without being missing.
    #[serde(rename = "stray_count")]
    pub strays: u64,
    #[serde(rename = "request_count")]
    pub requests: u64,
    /// Requests that repeat one without a reply.
    #[serde(rename = "retry_count")]
    pub retries: u64,
    #[serde(rename = "reply_count")]
    pub replies: u64,
    /// Replies of another session.
    #[serde(rename = "foreign_count")]
    pub foreign: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        add(&mut self.wanted, more.wanted);
        add(&mut self.recovered, more.recovered);
        add(&mut self.filled, more.filled);
        add(&mut self.given_up, more.given_up);
        add(&mut self.refused, more.refused);
        add(&mut self.strays, more.strays);
        add(&mut self.requests, more.requests);
        add(&mut self.retries, more.retries);
        add(&mut self.replies, more.replies);
        add(&mut self.foreign, more.foreign);
    }
}

/// Counts saturate: a forged sequence number claims that any number of messages is missing.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

/// A range of missing messages.
#[derive(Debug, Clone, Copy)]
struct Piece {
    first: u64,
    /// One past the last.
    end: u64,
    attempts: u32,
    /// Time of the next request.
    due_ns: u64,
}

/// Missing messages of one session.
///
/// Nothing is allocated after [`Recovery::new`].
#[derive(Debug)]
pub struct Recovery {
    session: mold::MoldSession,
    limits: RecoveryLimits,
    /// Ascending, disjoint, none longer than a request.
    pieces: Vec<Piece>,
    counts: Counts,
}

impl Recovery {
    /// Starts with no missing messages.
    pub fn new(session: mold::MoldSession, limits: RecoveryLimits) -> Self {
        let limits = RecoveryLimits {
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

    /// Adds missing messages. Known ones are not added twice.
    pub fn gap(&mut self, first: u64, count: u64, now_ns: u64) {
        let end = first.saturating_add(count);
        let mut from = first;
        // Index of the first piece that ends after `from`.
        let mut at = self.pieces.partition_point(|piece| piece.end <= from);
        while from < end {
            let next = self.pieces.get(at).copied();
            let free_end = next.map_or(end, |piece| piece.first.min(end));
            while from < free_end {
                if self.pieces.len() == self.limits.pieces {
                    add(&mut self.counts.wanted, free_end - from);
                    add(&mut self.counts.refused, free_end - from);
                    from = free_end;
                    break;
                }
                let to = free_end.min(from.saturating_add(self.limits.request_messages.into()));
                add(&mut self.counts.wanted, to - from);
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

    /// Removes a message that arrived on a line.
    pub fn received(&mut self, sequence: u64) {
        let filled = self.remove(sequence, sequence.saturating_add(1), None);
        add(&mut self.counts.filled, filled);
    }

    /// Handles a complete reply; the requested messages that it omits are due now. Returns the
    /// number of its messages that were missing.
    ///
    /// Heartbeats and the end of the session are not replies: they contain no messages.
    pub fn reply(&mut self, header: &mold::MoldHeader, now_ns: u64) -> u64 {
        if header.session != self.session {
            add(&mut self.counts.foreign, 1);
            return 0;
        }
        let (first, count) = (header.sequence, header.message_count());
        if count == 0 {
            return 0;
        }
        add(&mut self.counts.replies, 1);
        let end = first.saturating_add(count.into());
        let recovered = self.remove(first, end, Some(now_ns));
        add(&mut self.counts.recovered, recovered);
        add(&mut self.counts.strays, u64::from(count) - recovered);
        recovered
    }

    /// Next due action; `None` if none is due.
    pub fn poll(&mut self, now_ns: u64) -> Option<Action> {
        let at = self.next(now_ns)?;
        let piece = &mut self.pieces[at];
        let (first, count) = (piece.first, piece.end - piece.first);
        if piece.attempts >= self.limits.attempts {
            self.pieces.remove(at);
            add(&mut self.counts.given_up, count);
            return Some(Action::GaveUp { first, count });
        }
        let doubled = self.limits.retry_ns.saturating_mul(1 << piece.attempts.min(32));
        add(&mut self.counts.requests, 1);
        add(&mut self.counts.retries, u64::from(piece.attempts > 0));
        piece.attempts += 1;
        piece.due_ns = now_ns.saturating_add(doubled.min(self.limits.retry_max_ns));
        // A piece is never longer than a request.
        Some(Action::Request(RecoveryRequest { session: self.session, first, count: count as u16 }))
    }

    /// Time of the next action if no reply arrives: `now_ns` if one is due. `None` while nothing is
    /// missing.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        if self.next(now_ns).is_some() {
            return Some(now_ns);
        }
        // Due pieces that must wait depend on the outstanding ones.
        self.pieces.iter().map(|piece| piece.due_ns).filter(|due| *due > now_ns).min()
    }

    /// Index of the piece for the next action.
    fn next(&self, now_ns: u64) -> Option<usize> {
        let has_room = self
            .pieces
            .iter()
            .filter(|piece: &&Piece| piece.attempts > 0 && piece.due_ns > now_ns)
            .count()
            < self.limits.outstanding;
        self.pieces.iter().position(|piece| {
            piece.due_ns <= now_ns && (has_room || piece.attempts >= self.limits.attempts)
        })
    }

    /// Messages missing now.
    pub fn open(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.first).sum()
    }

    /// Counters so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// True if every missing message is counted exactly once, or if more are missing than can be counted.
    pub fn balances(&self) -> bool {
        let Counts { wanted, recovered, filled, given_up, refused, .. } = self.counts;
        let found = [recovered, filled, given_up, refused, self.open()];
        wanted == u64::MAX || wanted == found.into_iter().fold(0, u64::saturating_add)
    }

    /// Removes the range from `first` to `end` (exclusive) and returns the number of missing messages
    /// in it. With a time, it is a reply, and the rest of its request is due at that time.
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
                        // The server replied, but its packet was full.
                        (piece.attempts, piece.due_ns) = (0, now_ns);
                    }
                }
                (true, false) => piece.end = from,
                (true, true) => {
                    piece.end = from;
                    if self.pieces.len() < self.limits.pieces {
                        self.pieces.insert(at + 1, Piece { first: to, ..whole });
                    } else {
                        // No space for a second piece: its messages are refused.
                        add(&mut self.counts.refused, whole.end - to);
                    }
                }
            }
            at += 1;
        }
        removed
    }
}
