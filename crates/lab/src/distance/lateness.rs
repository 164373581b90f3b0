//! Lateness of a wire: a histogram without allocation.

/// Steps of a factor of two.
const STEPS: usize = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = 64 * STEPS;

/// Times in buckets of at most an eighth of their value.
#[derive(Debug, Clone)]
pub(super) struct Lateness {
    counts: [u32; BUCKETS],
    all_count: u64,
    pub(super) ns_max: u64,
}

impl Lateness {
    pub(super) fn new() -> Self {
        Lateness { counts: [0; BUCKETS], all_count: 0, ns_max: 0 }
    }

    pub(super) fn record(&mut self, late_ns: u64) {
        self.counts[bucket(late_ns)] += 1;
        self.all_count += 1;
        self.ns_max = self.ns_max.max(late_ns);
    }

    /// Upper end of the bucket that holds a quantile; 0 without times.
    pub(super) fn quantile_ns(&self, quantile: f64) -> u64 {
        let wanted = (self.all_count as f64 * quantile).ceil() as u64;
        let mut seen_count = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen_count += u64::from(*count);
            if seen_count >= wanted.max(1) {
                return end_of(at).min(self.ns_max);
            }
        }
        0
    }
}

fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    (shift as usize + 1) * STEPS + (ns >> shift) as usize - STEPS
}

/// Largest time of a bucket.
fn end_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let shift = bucket / STEPS - 1;
    let first = (STEPS + bucket % STEPS) as u64;
    ((first + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_ends_at_most_an_eighth_above_it() {
        for ns in (0..10_000).chain((0..40).map(|bits| 3_u64 << bits)) {
            let end = end_of(bucket(ns));
            assert!(end >= ns && end - ns <= ns / 8, "{ns}: {end}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut lateness = Lateness::new();
        assert_eq!(lateness.quantile_ns(0.99), 0);
        (0..1_000).for_each(|_| lateness.record(10));
        (0..11).for_each(|_| lateness.record(100_000));
        assert_eq!(lateness.quantile_ns(0.5), 10);
        assert_eq!((lateness.quantile_ns(0.99), lateness.ns_max), (100_000, 100_000));
    }
}
