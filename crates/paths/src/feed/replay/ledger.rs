//! What a replay really sent on each line, message by message: the truth that a receiver's
//! books are compared with.

use super::super::arbiter::Domain;
use super::super::messages::Digest;

/// A sequence that falls back by so much, to this at most, begins again.
const RESTART_BACK: u64 = 64;
const RESTART_FIRST_MAX: u64 = 32;

/// A message by number.
pub(super) type Number = (Domain, u64);

/// Messages of one kind, per domain those that no later message of the domain followed.
#[derive(Debug, Default)]
struct Dropped {
    count: u64,
    /// Of sequences that began again: behind their last.
    at_end: u64,
    pending: Vec<(Domain, u64, u64)>,
}

impl Dropped {
    fn note(&mut self, (domain, sequence): Number, is_dropped: bool) {
        let at = self.pending.iter().position(|(known, ..)| *known == domain);
        let at = at.unwrap_or_else(|| {
            self.pending.push((domain, 0, 0));
            self.pending.len() - 1
        });
        let (_, last, pending) = &mut self.pending[at];
        if begins_again(*last, sequence) {
            self.at_end += std::mem::take(pending);
        }
        *last = sequence;
        if is_dropped {
            self.count += 1;
            *pending += 1;
        } else {
            *pending = 0;
        }
    }

    fn at_end(&self) -> u64 {
        self.at_end + self.pending.iter().map(|(.., pending)| pending).sum::<u64>()
    }
}

fn begins_again(highest: u64, sequence: u64) -> bool {
    sequence <= RESTART_FIRST_MAX && highest >= sequence + RESTART_BACK
}

/// What became of the datagrams of one line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Sent, duplicates included.
    pub datagrams: u64,
    /// Bytes of UDP payload sent.
    pub payload_bytes: u64,
    /// Left out on purpose.
    pub dropped_datagrams: u64,
    /// Sent a second time on purpose.
    pub duplicated_datagrams: u64,
    /// Sent behind the next on purpose.
    pub delayed_datagrams: u64,
    /// Not taken by the kernel.
    pub unsent_datagrams: u64,
    /// Messages sent, duplicates included.
    pub messages: u64,
    /// Messages left out.
    pub dropped: u64,
    /// Of these, messages that none of their domain followed on the line: no receiver can tell
    /// by sequence.
    pub dropped_at_end: u64,
    /// Messages sent a second time.
    pub duplicated: u64,
    /// Messages sent below the line's highest of their domain, not counting second copies
    /// (RFC 4737 section 3.3).
    pub reordered: u64,
}

/// One line.
#[derive(Debug, Default)]
pub(super) struct LineLedger {
    counts: LineCounts,
    dropped: Dropped,
    highest: Vec<Number>,
}

impl LineLedger {
    /// Decided, in the order of the source.
    pub(super) fn decide(&mut self, messages: &[Number], is_dropped: bool) {
        self.counts.dropped_datagrams += u64::from(is_dropped);
        for message in messages {
            self.dropped.note(*message, is_dropped);
        }
    }

    pub(super) fn delay(&mut self) {
        self.counts.delayed_datagrams += 1;
    }

    pub(super) fn unsent(&mut self) {
        self.counts.unsent_datagrams += 1;
    }

    /// Sent, in the order of the wire.
    pub(super) fn sent(&mut self, messages: &[Number], payload_bytes: usize, is_copy: bool) {
        let count = messages.len() as u64;
        self.counts.datagrams += 1;
        self.counts.payload_bytes += payload_bytes as u64;
        self.counts.messages += count;
        if is_copy {
            self.counts.duplicated_datagrams += 1;
            self.counts.duplicated += count;
            return;
        }
        for (domain, sequence) in messages {
            match self.highest.iter_mut().find(|(known, _)| known == domain) {
                None => self.highest.push((*domain, *sequence)),
                Some((_, highest)) if begins_again(*highest, *sequence) => *highest = *sequence,
                Some((_, highest)) if *sequence < *highest => self.counts.reordered += 1,
                Some((_, highest)) => *highest = *sequence,
            }
        }
    }

    pub(super) fn counts(&self) -> LineCounts {
        LineCounts {
            dropped: self.dropped.count,
            dropped_at_end: self.dropped.at_end(),
            ..self.counts
        }
    }
}

/// All lines together.
#[derive(Debug, Default)]
pub(super) struct UnionLedger {
    dropped: Dropped,
    digests: Vec<(Domain, Digest)>,
    messages: u64,
}

impl UnionLedger {
    /// One message, and whether it was left out on every line.
    pub(super) fn note(&mut self, message: Number, bytes: &[u8], is_dropped: bool) {
        self.dropped.note(message, is_dropped);
        if is_dropped {
            return;
        }
        self.messages += 1;
        let (domain, sequence) = message;
        let at = self.digests.iter().position(|(known, _)| *known == domain);
        let at = at.unwrap_or_else(|| {
            self.digests.push((domain, Digest::default()));
            self.digests.len() - 1
        });
        self.digests[at].1.add(sequence, bytes);
    }

    /// Messages on at least one line; on none; of these those that none of their domain
    /// followed.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.messages, self.dropped.count, self.dropped.at_end())
    }

    pub(super) fn digests(&self) -> &[(Domain, Digest)] {
        &self.digests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Domain = Domain::twse(1, 6);

    #[test]
    fn what_is_dropped_behind_the_last_is_told_apart() {
        let mut line = LineLedger::default();
        for (sequence, is_dropped) in
            [(1, true), (2, false), (3, true), (4, false), (5, true), (6, true)]
        {
            line.decide(&[(D, sequence)], is_dropped);
        }
        let counts = line.counts();
        assert_eq!((counts.dropped, counts.dropped_at_end), (4, 2));
        assert_eq!(counts.dropped_datagrams, 4);
        // Begins again: what was behind the last stays there.
        (7..=200).for_each(|n| line.decide(&[(D, n)], n > 198));
        line.decide(&[(D, 1)], false);
        assert_eq!((line.counts().dropped, line.counts().dropped_at_end), (6, 2));
    }

    #[test]
    fn reordered_are_those_below_the_highest_and_copies_are_not() {
        let mut line = LineLedger::default();
        for (sequence, is_copy) in [(1, false), (3, false), (3, true), (2, false), (2, true)] {
            line.sent(&[(D, sequence)], 10, is_copy);
        }
        let counts = line.counts();
        assert_eq!((counts.messages, counts.duplicated, counts.reordered), (5, 2, 1));
    }

    #[test]
    fn the_union_is_what_any_line_carries() {
        let mut union = UnionLedger::default();
        for (sequence, is_dropped) in [(1, false), (2, true), (3, false), (4, true)] {
            union.note((D, sequence), b"x", is_dropped);
        }
        assert_eq!(union.counts(), (2, 2, 1));
        let mut expected = Digest::default();
        expected.add(1, b"x");
        expected.add(3, b"x");
        assert_eq!(union.digests(), [(D, expected)]);
    }
}
