//! Latency between two clocks that are not synchronised, relative to the fastest message.
//!
//! The difference of the two readings contains an unknown offset. It is estimated by the fastest
//! message of the run, **one for all lines**: lines stay comparable, and all figures are too low
//! by the latency of the fastest message.

use hdrhistogram::Histogram;
use model::latency_histogram;

/// Nanoseconds of a day, after which match times wrap.
const DAY_NS: i64 = 86_400_000_000_000;

/// Difference of two times of day in nanoseconds: the smallest in magnitude, so midnight may be
/// between them.
#[inline]
pub fn time_of_day_difference_ns(later_ns: i64, earlier_ns: i64) -> i64 {
    (later_ns - earlier_ns + DAY_NS / 2).rem_euclid(DAY_NS) - DAY_NS / 2
}

/// Space left below the smallest difference at the second shift, doubled up to [`GUARD_NS_MAX`],
/// so that the number of shifts is logarithmic.
const GUARD_NS: i64 = 2_000;
/// The match time's own resolution at three digits.
const GUARD_NS_MAX: i64 = 1_000_000;

/// Converts readings of two clocks to differences from those of the first message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Base(Option<i64>);

impl Base {
    /// Arrival minus match time, both nanoseconds of a day, minus that of the first message.
    /// Correct while it stays within half a day.
    #[inline]
    pub fn difference_ns(&mut self, arrival_ns: u64, match_ns: u64) -> i64 {
        let raw = arrival_ns as i64 - match_ns as i64;
        time_of_day_difference_ns(raw, *self.0.get_or_insert(raw))
    }
}

/// Histogram of differences from which an offset can be subtracted later.
#[derive(Debug, Clone)]
pub struct RelativeLatency {
    /// Value of the histogram's 0.
    reference_ns: i64,
    smallest_ns: Option<i64>,
    guard_ns: i64,
    histogram: Histogram<u64>,
    spare: Histogram<u64>,
}

impl Default for RelativeLatency {
    fn default() -> Self {
        RelativeLatency {
            reference_ns: 0,
            smallest_ns: None,
            guard_ns: 0,
            histogram: latency_histogram(),
            spare: latency_histogram(),
        }
    }
}

impl RelativeLatency {
    /// Records a difference in nanoseconds.
    #[inline]
    pub fn record(&mut self, difference_ns: i64) {
        self.record_n(difference_ns, 1);
    }

    #[inline]
    fn record_n(&mut self, difference_ns: i64, count: u64) {
        if difference_ns < self.reference_ns || self.histogram.is_empty() {
            self.lower(difference_ns);
        }
        let smallest = self.smallest_ns.get_or_insert(difference_ns);
        *smallest = difference_ns.min(*smallest);
        let above = difference_ns.saturating_sub(self.reference_ns).max(0) as u64;
        self.histogram.saturating_record_n(above, count);
    }

    #[cold]
    fn lower(&mut self, to_ns: i64) {
        if self.histogram.is_empty() {
            self.reference_ns = to_ns;
            return;
        }
        self.guard_ns = (self.guard_ns * 2).clamp(GUARD_NS, GUARD_NS_MAX);
        self.rebase(to_ns - self.guard_ns);
    }

    fn rebase(&mut self, reference_ns: i64) {
        let by = self.reference_ns.saturating_sub(reference_ns).max(0) as u64;
        self.spare.reset();
        for step in self.histogram.iter_recorded() {
            let value = self.histogram.median_equivalent(step.value_iterated_to());
            self.spare.saturating_record_n(value.saturating_add(by), step.count_at_value());
        }
        std::mem::swap(&mut self.histogram, &mut self.spare);
        self.reference_ns = reference_ns;
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: &RelativeLatency) {
        for step in other.histogram.iter_recorded() {
            let value = other.histogram.median_equivalent(step.value_iterated_to());
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            self.record_n(other.reference_ns.saturating_add(value), step.count_at_value());
        }
        // Exact, unlike the histogram.
        if let Some(smallest) = other.smallest_ns {
            self.smallest_ns = Some(self.smallest_ns.map_or(smallest, |own| own.min(smallest)));
        }
    }

    /// Removes all samples.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.smallest_ns = None;
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The smallest difference.
    pub fn smallest_ns(&self) -> Option<i64> {
        self.smallest_ns
    }

    /// Quantile of the differences minus `offset_ns`, the smallest of all lines; 1 is the maximum.
    pub fn quantile_ns(&self, quantile: f64, offset_ns: i64) -> u64 {
        let value = self.histogram.value_at_quantile(quantile);
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        let beyond = self.reference_ns.saturating_add(value).saturating_sub(offset_ns);
        beyond.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_message_of_all_lines_is_the_common_offset() {
        let (mut a, mut b) = (RelativeLatency::default(), RelativeLatency::default());
        let mut base = Base::default();
        // The other clock is three hours behind; line B is 40 µs slower.
        let hours = 3 * 3_600_000_000_000;
        for n in 0..1000_u64 {
            let matched = 1_000_000 * n;
            a.record(base.difference_ns(matched + hours + 500_000 + n * 100, matched));
            b.record(base.difference_ns(matched + hours + 540_000 + n * 100, matched));
        }
        let offset = a.smallest_ns().min(b.smallest_ns()).expect("there are samples");
        assert_eq!(a.quantile_ns(0.0, offset), 0);
        let near = |got: u64, expected: u64| got.abs_diff(expected) * 200 <= expected;
        assert!(near(a.quantile_ns(0.5, offset), 50_000), "{}", a.quantile_ns(0.5, offset));
        assert!(near(b.quantile_ns(0.5, offset), 90_000), "{}", b.quantile_ns(0.5, offset));
        assert!(near(b.quantile_ns(1.0, offset), 139_900));
    }

    #[test]
    fn a_new_minimum_shifts_the_histogram() {
        let mut excess = RelativeLatency::default();
        let mut all: Vec<i64> = Vec::new();
        for n in 0..2000_i64 {
            // The smallest decreases by 5 µs at a time, the others are constant.
            for value in [-5_000 * n, 3_000_000] {
                excess.record(value);
                all.push(value);
            }
        }
        all.sort_unstable();
        let smallest = all[0];
        assert_eq!(excess.smallest_ns(), Some(smallest));
        for quantile in [0.1, 0.25, 0.5, 0.9, 1.0] {
            let rank = ((all.len() as f64 * quantile).ceil() as usize).max(1) - 1;
            let exact = (all[rank] - smallest) as u64;
            let got = excess.quantile_ns(quantile, smallest);
            assert!(got.abs_diff(exact) <= exact / 100 + 2_000, "{quantile}: {got} for {exact}");
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut whole, mut sum) = (RelativeLatency::default(), RelativeLatency::default());
        let mut part = RelativeLatency::default();
        for n in 0..300_i64 {
            let value = (n * 7919) % 1_000_003 - 400_000;
            whole.record(value);
            part.record(value);
            if n % 50 == 49 {
                sum.merge(&part);
                part.clear();
            }
        }
        assert_eq!((sum.count(), part.count()), (300, 0));
        assert_eq!(sum.smallest_ns(), whole.smallest_ns());
        let offset = whole.smallest_ns().expect("samples");
        let (one, other) = (sum.quantile_ns(0.5, offset), whole.quantile_ns(0.5, offset));
        assert!(one.abs_diff(other) <= other / 50, "{one} {other}");
    }

    #[test]
    fn midnight_does_not_change_differences() {
        let mut base = Base::default();
        let before = base.difference_ns(DAY_NS as u64 - 1_000, DAY_NS as u64 - 2_000);
        let across = base.difference_ns(DAY_NS as u64 + 500, DAY_NS as u64 - 1_000);
        assert_eq!((before, across), (0, 500));
    }
}
