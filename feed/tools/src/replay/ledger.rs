//! Messages that a replay sent on each line: ground truth for the counts of a receiver.

use crate::arbiter::SequenceDomain;
use crate::messages::Digest;
use serde::Serialize;

/// A sequence that falls back by at least this much, to at most this, restarts.
const RESTART_BACK: u64 = 64;
const RESTART_FIRST_MAX: u64 = 32;

/// Identity of a message.
pub(super) type Number = (SequenceDomain, u64);

/// Messages of one kind, and per domain those without a later message of the domain.
#[derive(Debug, Default)]
struct Dropped {
    count: u64,
    /// Those at the end of sequences that restarted.
    at_end: u64,
    pending: Vec<(SequenceDomain, u64, u64)>,
}

impl Dropped {
    fn note(&mut self, (domain, sequence): Number, is_dropped: bool) {
        let at = self.pending.iter().position(|(known, ..)| *known == domain);
        let at = at.unwrap_or_else(|| {
            self.pending.push((domain, 0, 0));
            self.pending.len() - 1
        });
        let (_, last, pending) = &mut self.pending[at];
        if is_restart(*last, sequence) {
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

fn is_restart(highest: u64, sequence: u64) -> bool {
    sequence <= RESTART_FIRST_MAX && highest >= sequence + RESTART_BACK
}

/// Counts of one line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LineCounts {
    /// Sent, duplicates included.
    #[serde(rename = "datagram_count")]
    pub datagrams: u64,
    /// Bytes of UDP payload sent.
    pub payload_bytes: u64,
    /// Dropped by a fault.
    #[serde(rename = "dropped_datagram_count")]
    pub dropped_datagrams: u64,
    /// Duplicated by a fault.
    #[serde(rename = "duplicated_datagram_count")]
    pub duplicated_datagrams: u64,
    /// Delayed behind the next by a fault.
    #[serde(rename = "delayed_datagram_count")]
    pub delayed_datagrams: u64,
    /// Refused by the kernel.
    #[serde(rename = "unsent_datagram_count")]
    pub unsent_datagrams: u64,
    /// Messages sent, duplicates included.
    #[serde(rename = "message_count")]
    pub messages: u64,
    #[serde(rename = "dropped_count")]
    pub dropped: u64,
    /// Dropped messages without a later message of their domain on the line, which a receiver
    /// cannot detect by sequence.
    #[serde(rename = "dropped_at_end_count")]
    pub dropped_at_end: u64,
    #[serde(rename = "duplicated_count")]
    pub duplicated: u64,
    /// Messages sent below the line's highest of their domain, without duplicates (RFC 4737
    /// section 3.3).
    #[serde(rename = "reordered_count")]
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
    /// Records the decision on a datagram, in source order.
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

    /// Records a sent datagram, in wire order.
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
                Some((_, highest)) if is_restart(*highest, *sequence) => *highest = *sequence,
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
    digests: Vec<(SequenceDomain, Digest)>,
    messages: u64,
}

impl UnionLedger {
    /// Records a message, and whether it was dropped on every line.
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

    pub(super) fn digests(&self) -> &[(SequenceDomain, Digest)] {
        &self.digests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: SequenceDomain = SequenceDomain::twse(1, 6);

    #[test]
    fn drops_at_the_end_are_counted_separately() {
        let mut line = LineLedger::default();
        for (sequence, is_dropped) in
            [(1, true), (2, false), (3, true), (4, false), (5, true), (6, true)]
        {
            line.decide(&[(D, sequence)], is_dropped);
        }
        let counts = line.counts();
        assert_eq!((counts.dropped, counts.dropped_at_end), (4, 2));
        assert_eq!(counts.dropped_datagrams, 4);
        // Restart: messages at the end of the old sequence stay counted.
        (7..=200).for_each(|n| line.decide(&[(D, n)], n > 198));
        line.decide(&[(D, 1)], false);
        assert_eq!((line.counts().dropped, line.counts().dropped_at_end), (6, 2));
    }

    #[test]
    fn reordered_are_messages_below_the_highest_without_copies() {
        let mut line = LineLedger::default();
        for (sequence, is_copy) in [(1, false), (3, false), (3, true), (2, false), (2, true)] {
            line.sent(&[(D, sequence)], 10, is_copy);
        }
        let counts = line.counts();
        assert_eq!((counts.messages, counts.duplicated, counts.reordered), (5, 2, 1));
    }

    #[test]
    fn the_union_is_the_messages_of_any_line() {
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
