//! One epoch of one domain: received, held and next sequences.

use super::reorder_buffer::{NONE, ReorderBuffer};
use super::{ArbiterDelivery, ArbiterLimits, FeedLine, GapCause, OpenGap, SequenceDomain, Totals};

/// Delivered; the other bits are the lines that carried it.
const DELIVERED: u8 = 1 << 6;
const HELD: u8 = 1 << 7;

/// Class of a message in its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Fresh,
    Copy,
    Repeat,
    Late,
    Forgotten,
}

/// Parts of the arbiter that a track uses.
pub(super) struct Out<'a, F> {
    pub(super) hold: &'a mut ReorderBuffer,
    pub(super) totals: &'a mut Totals,
    pub(super) deliver: &'a mut F,
}

#[derive(Debug)]
pub(super) struct Track {
    domain: SequenceDomain,
    pub(super) epoch: u32,
    place: (u32, u8),
    from_one: bool,
    /// One byte per sequence, at its value modulo the memory: lines and outcome.
    marks: Box<[u8]>,
    /// Slots of held messages, at their sequence modulo the reach.
    slots: Box<[u32]>,
    begun: bool,
    /// The first sequence is not known yet; all messages are held.
    settling: bool,
    pub(super) first: u64,
    next: u64,
    pub(super) highest: u64,
    /// Lowest held sequence, while settling.
    lowest: u64,
    held: u64,
    delivered: u64,
    missing: u64,
}

impl Track {
    pub(super) fn new(domain: SequenceDomain, place: (u32, u8), limits: &ArbiterLimits) -> Self {
        Track {
            domain,
            epoch: 0,
            place,
            from_one: limits.from_one,
            marks: vec![0; limits.memory as usize].into_boxed_slice(),
            slots: vec![NONE; limits.reach as usize].into_boxed_slice(),
            begun: false,
            settling: false,
            first: 0,
            next: 0,
            highest: 0,
            lowest: 0,
            held: 0,
            delivered: 0,
            missing: 0,
        }
    }

    /// Resets the track; no message may be held.
    pub(super) fn reset(&mut self, epoch: u32) {
        self.epoch = epoch;
        if self.begun {
            self.marks.fill(0);
        }
        self.begun = false;
        self.settling = false;
        (self.first, self.highest) = (0, 0);
        (self.delivered, self.missing) = (0, 0);
    }

    pub(super) fn rename(&mut self, domain: SequenceDomain) {
        self.domain = domain;
    }

    /// Starts the epoch at 1.
    pub(super) fn begin_at_one(&mut self) {
        self.begun = true;
        self.settling = false;
        (self.first, self.next, self.highest) = (1, 1, 0);
    }

    /// Records the line of a sequence; returns its class.
    #[inline]
    pub(super) fn classify(&mut self, line: FeedLine, sequence: u64) -> Class {
        if !self.begun {
            self.begin(sequence);
        }
        if sequence > self.highest {
            self.advance(sequence);
            *self.mark(sequence) = line.bit();
            return Class::Fresh;
        }
        if self.highest - sequence >= self.marks.len() as u64 {
            return Class::Forgotten;
        }
        // Too far below all that is held to be held with it: it is of before the beginning.
        let is_below = self.settling && self.highest - sequence >= self.slots.len() as u64;
        let is_past = is_below || !self.settling && sequence < self.next;
        let mark = self.mark(sequence);
        let known = *mark;
        *mark |= line.bit();
        if known & line.bit() != 0 {
            Class::Repeat
        } else if known & (DELIVERED | HELD) != 0 {
            Class::Copy
        } else if is_past {
            Class::Late
        } else {
            Class::Fresh
        }
    }

    #[cold]
    fn begin(&mut self, sequence: u64) {
        if self.from_one || sequence == 1 {
            return self.begin_at_one();
        }
        self.begun = true;
        (self.first, self.lowest) = (sequence, sequence);
        self.highest = sequence.saturating_sub(1);
        // No sequence is below 0, so the start is known.
        self.settling = sequence > 0;
        self.next = sequence;
    }

    #[inline]
    fn mark(&mut self, sequence: u64) -> &mut u8 {
        let mask = self.marks.len() as u64 - 1;
        &mut self.marks[(sequence & mask) as usize]
    }

    /// Clears the marks that fall out of the memory with a new highest.
    #[inline]
    fn advance(&mut self, sequence: u64) {
        let passed = sequence - self.highest;
        if passed == 1 {
            *self.mark(sequence) = 0;
        } else if passed >= self.marks.len() as u64 {
            self.marks.fill(0);
        } else {
            for between in self.highest + 1..=sequence {
                *self.mark(between) = 0;
            }
        }
        self.highest = sequence;
    }

    #[inline]
    pub(super) fn is_next(&self, sequence: u64) -> bool {
        !self.settling && sequence == self.next
    }

    /// Ends settling at sequence 1, the lowest.
    pub(super) fn settle_if_one(&mut self, sequence: u64) {
        if self.settling && sequence <= 1 {
            self.settle(sequence);
        }
    }

    fn settle(&mut self, first: u64) {
        self.settling = false;
        (self.first, self.next) = (first, first);
    }

    #[inline]
    fn slot(&mut self, sequence: u64) -> &mut u32 {
        let mask = self.slots.len() as u64 - 1;
        &mut self.slots[(sequence & mask) as usize]
    }

    fn is_held(&self, sequence: u64) -> bool {
        let mask = self.slots.len() as u64 - 1;
        self.slots[(sequence & mask) as usize] != NONE
    }

    /// Closes gaps until a message is within reach.
    pub(super) fn bring_into_reach<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        sequence: u64,
        out: &mut Out<'_, F>,
    ) {
        let reach = self.slots.len() as u64;
        if self.settling {
            if self.held == 0 {
                return;
            }
            // A sequence that far below is late, so this one is far above.
            if sequence < self.lowest || sequence - self.lowest < reach {
                return;
            }
            out.totals.overflows += 1;
            self.settle(self.lowest);
            self.drain(out);
        }
        while sequence - self.next >= reach {
            out.totals.overflows += 1;
            self.release_gap(sequence, GapCause::Overflow, out);
        }
    }

    /// Closes all gaps before a message.
    pub(super) fn bring_to<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        sequence: u64,
        out: &mut Out<'_, F>,
    ) {
        out.totals.overflows += 1;
        while !self.is_next(sequence) {
            self.release_gap(sequence, GapCause::Overflow, out);
        }
    }

    /// Closes the first gap, up to the next held message or `limit`, and delivers the contiguous
    /// messages after it.
    pub(super) fn release_gap<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        limit: u64,
        cause: GapCause,
        out: &mut Out<'_, F>,
    ) {
        if self.settling {
            let first = if self.held == 0 { limit } else { self.lowest.min(limit) };
            self.settle(first);
            return self.drain(out);
        }
        let mut end = limit;
        if self.held > 0 {
            let reach_end = self.next + self.slots.len() as u64;
            end = (self.next..reach_end.min(limit)).find(|&s| self.is_held(s)).unwrap_or(limit);
        }
        if end > self.next {
            let (first, count) = (self.next, end - self.next);
            self.next = end;
            self.missing = self.missing.saturating_add(count);
            out.totals.gaps += 1;
            out.totals.missing = out.totals.missing.saturating_add(count);
            (out.deliver)(ArbiterDelivery::Gap {
                domain: self.domain,
                epoch: self.epoch,
                first,
                count,
                cause,
            });
        }
        self.drain(out);
    }

    /// Closes every gap before a held message.
    pub(super) fn release_through<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        sequence: u64,
        cause: GapCause,
        out: &mut Out<'_, F>,
    ) {
        while self.held > 0 && (self.settling || self.next <= sequence) {
            self.release_gap(u64::MAX, cause, out);
        }
    }

    /// Delivers all held messages.
    pub(super) fn flush<F: FnMut(ArbiterDelivery<'_>)>(&mut self, out: &mut Out<'_, F>) {
        self.release_through(u64::MAX, GapCause::Closed, out);
    }

    /// Delivers the next message, and the held messages after it.
    #[inline]
    pub(super) fn deliver_next<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        line: FeedLine,
        now_ns: u64,
        message: &[u8],
        out: &mut Out<'_, F>,
    ) {
        self.delivered_one(line, now_ns, message, out.totals, out.deliver);
        self.drain(out);
    }

    #[inline]
    fn delivered_one<F: FnMut(ArbiterDelivery<'_>)>(
        &mut self,
        line: FeedLine,
        arrived_ns: u64,
        message: &[u8],
        totals: &mut Totals,
        deliver: &mut F,
    ) {
        let sequence = self.next;
        let mark = self.mark(sequence);
        *mark = *mark & !HELD | DELIVERED;
        self.next = sequence + 1;
        self.delivered += 1;
        totals.delivered += 1;
        let (domain, epoch) = (self.domain, self.epoch);
        deliver(ArbiterDelivery::Message { line, domain, epoch, sequence, arrived_ns, message });
    }

    #[inline]
    fn drain<F: FnMut(ArbiterDelivery<'_>)>(&mut self, out: &mut Out<'_, F>) {
        while self.held > 0 {
            let slot = std::mem::replace(self.slot(self.next), NONE);
            if slot == NONE {
                break;
            }
            self.held -= 1;
            let (held, message) = out.hold.get(slot);
            self.delivered_one(held.line, held.arrived_ns, message, out.totals, out.deliver);
            out.hold.free(slot);
        }
    }

    /// Holds a message that is in reach.
    pub(super) fn hold(
        &mut self,
        line: FeedLine,
        sequence: u64,
        now_ns: u64,
        message: &[u8],
        hold: &mut ReorderBuffer,
    ) {
        if self.settling {
            self.lowest = if self.held == 0 { sequence } else { self.lowest.min(sequence) };
        }
        *self.mark(sequence) |= HELD;
        *self.slot(sequence) = hold.put(self.place, line, sequence, now_ns, message);
        self.held += 1;
    }

    pub(super) fn open_gaps(&self, each: &mut impl FnMut(OpenGap)) {
        if self.settling || self.held == 0 {
            return;
        }
        let (domain, mut first, mut held) = (self.domain, self.next, 0);
        for sequence in self.next..=self.highest {
            if !self.is_held(sequence) {
                continue;
            }
            if sequence > first {
                each(OpenGap { domain, first, count: sequence - first });
            }
            first = sequence + 1;
            held += 1;
            if held == self.held {
                break;
            }
        }
    }

    /// (first, highest) when they are known.
    pub(super) fn bounds(&self) -> (Option<u64>, Option<u64>) {
        let heard = self.begun && self.highest + 1 != self.first;
        ((heard && !self.settling).then_some(self.first), heard.then_some(self.highest))
    }

    /// Highest − first + 1.
    pub(super) fn span(&self) -> u64 {
        match self.bounds() {
            (Some(first), Some(highest)) => highest - first + 1,
            // Not settled: there are only held messages.
            _ => self.held,
        }
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Messages in open gaps.
    pub(super) fn open(&self) -> u64 {
        let mut open = 0;
        self.open_gaps(&mut |gap| open += gap.count);
        open
    }
}
