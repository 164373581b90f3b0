//! Sequence numbers of a flow: new, repeated, reordered and late arrivals.

use crate::Delivery;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceArrival {
    /// First arrival, above all earlier ones.
    New,
    /// Repeated arrival.
    Duplicate,
    /// First arrival, below the highest before it (RFC 4737 section 3.3).
    Reordered,
    /// Too far below the highest to be classified.
    TooOld,
}

/// Counts arrivals of one flow by sequence number (32 bits, wrapping).
///
/// A sliding bitmap covers the last `window` sequence numbers. Recording takes a few operations and
/// never allocates; a jump forward clears the bits it skips, at most the whole bitmap.
#[derive(Debug, Clone)]
pub struct SequenceCounts {
    /// One bit per sequence number, at its value modulo the window.
    seen: Box<[u64]>,
    /// Highest sequence number so far, unwrapped to 64 bits; 0 before the first.
    highest: u64,
    received: u64,
    duplicated: u64,
    reordered: u64,
    too_old: u64,
}

/// Default window in sequence numbers: 128 KiB of bits.
const WINDOW: usize = 1 << 20;

/// Unwrapped numbers start here, so that late ones below the first never go negative.
const ORIGIN: u64 = 1 << 32;

impl Default for SequenceCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl SequenceCounts {
    /// Counts with a window of 2^20 sequence numbers.
    pub fn new() -> Self {
        Self::with_window(WINDOW)
    }

    /// Counts with a window of `window` sequence numbers, rounded up to a power of two between 64 and
    /// 2^31.
    pub fn with_window(window: usize) -> Self {
        let window = window.clamp(64, 1 << 31).next_power_of_two();
        SequenceCounts {
            seen: vec![0; window / 64].into_boxed_slice(),
            highest: 0,
            received: 0,
            duplicated: 0,
            reordered: 0,
            too_old: 0,
        }
    }

    /// Window in sequence numbers.
    #[inline]
    pub fn window(&self) -> usize {
        self.seen.len() * 64
    }

    #[inline]
    pub fn record(&mut self, seq: u32) -> SequenceArrival {
        // Without a check for an overflow, which 64 bits do not reach: it took a fifth of the time.
        self.received = self.received.wrapping_add(1);
        let ahead = seq.wrapping_sub(self.highest as u32) as i32;
        if ahead == 1 && self.highest != 0 {
            self.highest = self.highest.wrapping_add(1);
            self.mark(self.highest);
            return SequenceArrival::New;
        }
        self.record_out_of_order(seq, ahead)
    }

    /// Cold path: the first arrival, a jump, or a late arrival. Inlined, so that it is optimised as its caller: this
    /// crate is not in profile `quick`.
    #[inline]
    fn record_out_of_order(&mut self, seq: u32, ahead: i32) -> SequenceArrival {
        if self.highest == 0 {
            self.highest = ORIGIN + u64::from(seq);
            self.mark(self.highest);
            return SequenceArrival::New;
        }
        if ahead > 0 {
            let highest = self.highest + ahead as u64;
            self.clear_between(self.highest + 1, highest);
            self.highest = highest;
            self.mark(highest);
            return SequenceArrival::New;
        }
        let behind = u64::from(ahead.unsigned_abs());
        if behind >= self.window() as u64 {
            self.too_old += 1;
            return SequenceArrival::TooOld;
        }
        let (word, bit) = self.place(self.highest - behind);
        if self.seen[word] & bit != 0 {
            self.duplicated += 1;
            return SequenceArrival::Duplicate;
        }
        self.seen[word] |= bit;
        self.reordered += 1;
        SequenceArrival::Reordered
    }

    #[inline]
    fn place(&self, sequence: u64) -> (usize, u64) {
        let slot = sequence as usize & self.seen.len().wrapping_mul(64).wrapping_sub(1);
        (slot / 64, 1 << (slot % 64))
    }

    #[inline]
    fn mark(&mut self, sequence: u64) {
        let (word, bit) = self.place(sequence);
        self.seen[word] |= bit;
    }

    /// Clears the bits of `from..to`, which belong to numbers one window earlier.
    #[inline]
    fn clear_between(&mut self, from: u64, to: u64) {
        let window = self.window() as u64;
        if to - from >= window {
            self.seen.fill(0);
            return;
        }
        let mut sequence = from;
        while sequence < to {
            let slot = sequence & (window - 1);
            let (word, first) = ((slot / 64) as usize, slot % 64);
            let bits = (64 - first).min(to - sequence);
            self.seen[word] &= !((u64::MAX >> (64 - bits)) << first);
            sequence += bits;
        }
    }

    /// Arrivals, including duplicates and those too old to classify.
    pub fn received_count(&self) -> u64 {
        self.received
    }

    /// Arrivals of a sequence number that had arrived before.
    pub fn duplicated_count(&self) -> u64 {
        self.duplicated
    }

    /// First arrivals below the highest before them.
    pub fn reordered_count(&self) -> u64 {
        self.reordered
    }

    /// Arrivals a window or more below the highest, which may be first or repeated ones.
    pub fn too_old_count(&self) -> u64 {
        self.too_old
    }

    /// Sequence numbers that arrived at least once.
    pub fn first_arrival_count(&self) -> u64 {
        self.received - self.duplicated - self.too_old
    }

    /// Highest sequence number so far, as it was sent; `None` before the first arrival.
    pub fn highest(&self) -> Option<u32> {
        (self.highest != 0).then_some(self.highest as u32)
    }

    /// Returns the counts of this direction.
    ///
    /// - `sent_count`: datagrams that the sender sent.
    ///
    /// Arrivals too old to classify are left out: a datagram that late counts as lost (RFC 7680
    /// section 2.5 has such a threshold). Report them separately.
    pub fn delivery(&self, sent_count: u64) -> Delivery {
        Delivery {
            sent_count,
            received_count: self.received - self.too_old,
            duplicated_count: Some(self.duplicated),
            reordered_count: self.reordered,
        }
    }
}

/// Inter-arrival jitter: the smoothed difference of transit times.
///
/// Source: RFC 3550 sections 6.4.1 and A.8 (the integer form with a gain of 1/16).
/// Sender and receiver need no common clock; only differences count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Jitter {
    /// Transit time of the previous arrival, modulo 2^64.
    transit_ns: Option<u64>,
    /// Sixteen times the estimate.
    scaled_ns: u64,
}

impl Jitter {
    /// Records one arrival: its times of sending and receiving in nanoseconds, each on the clock of its
    /// own end.
    #[inline]
    pub fn record(&mut self, sent_ns: u64, received_ns: u64) {
        let transit_ns = received_ns.wrapping_sub(sent_ns);
        if let Some(before_ns) = self.transit_ns.replace(transit_ns) {
            let change_ns = (transit_ns.wrapping_sub(before_ns) as i64).unsigned_abs();
            let decay_ns = self.scaled_ns.wrapping_add(8) >> 4;
            self.scaled_ns = self.scaled_ns.saturating_add(change_ns).saturating_sub(decay_ns);
        }
    }

    /// Estimate in nanoseconds; `None` before the first arrival.
    pub fn jitter_ns(&self) -> Option<u64> {
        self.transit_ns.map(|_| self.scaled_ns >> 4)
    }
}
