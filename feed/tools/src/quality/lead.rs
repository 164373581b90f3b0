//! Lead of the line that carried a message first over the other.

use hdrhistogram::Histogram;
use model::latency_histogram;

use crate::arbiter::{FeedLine, SequenceDomain};

/// Messages of a domain that are remembered until their copy arrives; a power of two.
const REMEMBERED: usize = 1 << 14;

/// First arrival of a message. Sequences start at 1, so 0 is none.
#[derive(Debug, Clone, Copy, Default)]
struct First {
    sequence: u64,
    at_ns: u64,
    is_b: bool,
}

/// Leads of lines A and B over each other.
#[derive(Debug)]
pub struct Lead {
    domains: Vec<(SequenceDomain, Box<[First]>)>,
    last: usize,
    /// Nanoseconds by which A was first, then B.
    ahead: [Histogram<u64>; 2],
    /// Copies whose first arrival was forgotten.
    unpaired_count: u64,
}

impl Default for Lead {
    fn default() -> Self {
        Lead {
            domains: Vec::new(),
            last: 0,
            ahead: [latency_histogram(), latency_histogram()],
            unpaired_count: 0,
        }
    }
}

impl Lead {
    #[inline]
    pub(super) fn first(
        &mut self,
        line: FeedLine,
        domain: SequenceDomain,
        sequence: u64,
        at_ns: u64,
    ) {
        let is_b = line == FeedLine::B;
        if line != FeedLine::Recovery {
            *self.place(domain, sequence) = First { sequence, at_ns, is_b };
        }
    }

    #[inline]
    pub(super) fn second(
        &mut self,
        line: FeedLine,
        domain: SequenceDomain,
        sequence: u64,
        at_ns: u64,
    ) {
        let first = *self.place(domain, sequence);
        let is_b = line == FeedLine::B;
        if line == FeedLine::Recovery || first.sequence != sequence || first.is_b == is_b {
            self.unpaired_count += u64::from(line != FeedLine::Recovery);
            return;
        }
        // By stamps the copy may have been the earlier one.
        let ahead_ns = at_ns as i64 - first.at_ns as i64;
        let leader = usize::from(first.is_b ^ (ahead_ns < 0));
        self.ahead[leader].saturating_record(ahead_ns.unsigned_abs());
    }

    /// Forgets the messages of a domain.
    pub(super) fn remove(&mut self, domain: SequenceDomain) {
        self.domains.retain(|(known, _)| *known != domain);
        self.last = 0;
    }

    fn place(&mut self, domain: SequenceDomain, sequence: u64) -> &mut First {
        if self.domains.get(self.last).is_none_or(|(known, _)| *known != domain) {
            let known = self.domains.iter().position(|(known, _)| *known == domain);
            self.last = known.unwrap_or_else(|| {
                let empty = vec![First::default(); REMEMBERED].into_boxed_slice();
                self.domains.push((domain, empty));
                self.domains.len() - 1
            });
        }
        &mut self.domains[self.last].1[sequence as usize & (REMEMBERED - 1)]
    }

    /// Nanoseconds by which a line was first: 0 for A, 1 for B.
    pub fn ahead(&self, line: usize) -> &Histogram<u64> {
        &self.ahead[line]
    }

    /// Messages that both lines carried.
    pub fn pair_count(&self) -> u64 {
        self.ahead.iter().map(Histogram::len).sum()
    }

    /// Copies that came too long after the other line's for a comparison.
    pub fn unpaired_count(&self) -> u64 {
        self.unpaired_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: SequenceDomain = SequenceDomain::twse(1, 6);

    #[test]
    fn the_line_with_the_earlier_stamp_leads() {
        let mut lead = Lead::default();
        for sequence in 1..=30 {
            // A is 5 µs ahead twice, then B 2 µs.
            let (a_ns, b_ns) = match sequence % 3 {
                0 => (1_002_000, 1_000_000),
                _ => (1_000_000, 1_005_000),
            };
            // The order of reading is not that of the stamps.
            lead.first(FeedLine::A, DOMAIN, sequence, a_ns);
            lead.second(FeedLine::B, DOMAIN, sequence, b_ns);
        }
        assert_eq!((lead.ahead(0).len(), lead.ahead(1).len()), (20, 10));
        assert!(
            lead.ahead(0).max().abs_diff(5_000) < 10 && lead.ahead(1).max().abs_diff(2_000) < 4
        );
        assert_eq!((lead.pair_count(), lead.unpaired_count()), (30, 0));
    }

    #[test]
    fn a_copy_whose_first_arrival_was_forgotten_is_counted_and_not_compared() {
        let mut lead = Lead::default();
        let later = 1 + REMEMBERED as u64;
        lead.first(FeedLine::A, DOMAIN, 1, 10);
        lead.first(FeedLine::A, DOMAIN, later, 20);
        lead.second(FeedLine::B, DOMAIN, 1, 30);
        assert_eq!((lead.pair_count(), lead.unpaired_count()), (0, 1));
        lead.second(FeedLine::B, DOMAIN, later, 30);
        assert_eq!((lead.pair_count(), lead.unpaired_count()), (1, 1));
    }
}
