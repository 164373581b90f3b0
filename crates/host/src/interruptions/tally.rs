//! Delays by their cause.

use std::collections::BTreeMap;

use super::{Cause, CauseKind};

/// Largest number of different causes; further ones lose their detail.
const CAUSES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub sum_ns: u64,
    pub max_ns: u64,
}

/// Delays by cause, in memory that does not grow with their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tallies {
    rows: BTreeMap<Cause, Tally>,
}

impl Tallies {
    pub fn add(&mut self, cause: Cause, len_ns: u64) {
        let is_full = self.rows.len() >= CAUSES_MAX && !self.rows.contains_key(&cause);
        let cause = if is_full { Cause::plain(cause.kind) } else { cause };
        let tally = self.rows.entry(cause).or_default();
        tally.count += 1;
        tally.sum_ns = tally.sum_ns.saturating_add(len_ns);
        tally.max_ns = tally.max_ns.max(len_ns);
    }

    /// All causes, the most frequent first.
    pub fn rows(&self) -> Vec<(&Cause, Tally)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(cause, tally)| (cause, *tally)).collect();
        rows.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.count));
        rows
    }

    /// Delays of one kind, whatever the detail.
    pub fn count_of(&self, kind: CauseKind) -> u64 {
        let of = self.rows.iter().filter(|(cause, _)| cause.kind == kind);
        of.map(|(_, tally)| tally.count).sum()
    }

    pub fn total(&self) -> Tally {
        self.rows.values().fold(Tally::default(), |sum, tally| Tally {
            count: sum.count + tally.count,
            sum_ns: sum.sum_ns.saturating_add(tally.sum_ns),
            max_ns: sum.max_ns.max(tally.max_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_summed_by_cause_and_names_without_end_take_no_memory() {
        let mut tallies = Tallies::default();
        for number in 0..1000 {
            let detail = format!("task {number}");
            tallies.add(Cause { kind: CauseKind::Preemption, detail }, 10);
        }
        tallies.add(Cause::plain(CauseKind::Steal), 7);
        assert_eq!(tallies.count_of(CauseKind::Preemption), 1000);
        assert!(tallies.rows().len() <= CAUSES_MAX + 2, "{}", tallies.rows().len());
        assert_eq!(tallies.total(), Tally { count: 1001, sum_ns: 10_007, max_ns: 10 });
    }
}
