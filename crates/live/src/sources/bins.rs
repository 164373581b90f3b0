//! Cumulative histograms, and quantiles of the difference of two.

/// Returns the value below which the share `quantile` of the counts lies, by interpolation within its bin. `None` if there
/// are no counts.
///
/// - `counts`: in ascending order of the values; each with the lower and upper edge of its bin.
pub(super) fn quantile(
    counts: impl Iterator<Item = (f64, f64, f64)> + Clone,
    quantile: f64,
) -> Option<f64> {
    let total: f64 = counts.clone().map(|(_, _, count)| count).sum();
    if total <= 0.0 {
        return None;
    }
    let wanted = quantile.clamp(0.0, 1.0) * total;
    let (mut before, mut last) = (0.0, None);
    for (low, high, count) in counts.filter(|(_, _, count)| *count > 0.0) {
        if before + count >= wanted {
            return Some(low + (high - low) * ((wanted - before) / count).clamp(0.0, 1.0));
        }
        before += count;
        last = Some(high);
    }
    last
}

/// Width of a bin as a share of its value.
const BIN_RATIO: f64 = 1.02;
/// Smallest value that has a bin of its own; smaller ones count as 0.
const VALUE_MIN: f64 = 1e-12;
/// Bins up to about 1e17.
const BIN_COUNT: usize = 3400;

/// Cumulative histogram of positive numbers of any unit, in bins of 2 %, with their sum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ValueBins {
    counts: Vec<u64>,
    zero_count: u64,
    pub(super) sum: f64,
}

impl ValueBins {
    pub(super) fn new() -> ValueBins {
        ValueBins { counts: vec![0; BIN_COUNT], zero_count: 0, sum: 0.0 }
    }

    /// Adds a number that is finite and not negative.
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        if value < VALUE_MIN {
            self.zero_count += 1;
            return;
        }
        let bin = ((value / VALUE_MIN).ln() / BIN_RATIO.ln()) as usize;
        self.counts[bin.min(BIN_COUNT - 1)] += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.zero_count + self.counts.iter().sum::<u64>()
    }

    /// Quantile of the numbers that were added since `earlier`, a copy of these bins.
    pub(super) fn quantile_since(&self, earlier: &ValueBins, share: f64) -> Option<f64> {
        let zeros = (self.zero_count.saturating_sub(earlier.zero_count)) as f64;
        let counts = self.counts.iter().zip(&earlier.counts).enumerate();
        let counts = counts.map(|(bin, (now, before))| {
            let low = VALUE_MIN * BIN_RATIO.powi(bin as i32);
            (low, low * BIN_RATIO, now.saturating_sub(*before) as f64)
        });
        quantile(std::iter::once((0.0, 0.0, zeros)).chain(counts), share)
    }

    /// Mean of the numbers that were added since `earlier`.
    pub(super) fn mean_since(&self, earlier: &ValueBins) -> Option<f64> {
        let count = self.count().saturating_sub(earlier.count());
        (count > 0).then(|| (self.sum - earlier.sum) / count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_difference_are_those_of_the_numbers_added_between() {
        let mut bins = ValueBins::new();
        (0..1000).for_each(|_| bins.add(9e9));
        let earlier = bins.clone();
        assert_eq!(bins.quantile_since(&earlier, 0.5), None);
        (1..=10_000).for_each(|n| bins.add(f64::from(n) / 1000.0));
        for share in [0.01, 0.5, 0.99] {
            let found = bins.quantile_since(&earlier, share).unwrap();
            assert!((found / (share * 10.0) - 1.0).abs() < 0.02, "{share}: {found}");
        }
        assert!((bins.mean_since(&earlier).unwrap() - 5.0005).abs() < 1e-3);
    }

    #[test]
    fn zeros_and_numbers_beyond_the_bins_count_at_the_ends() {
        let (earlier, mut bins) = (ValueBins::new(), ValueBins::new());
        [0.0, 0.0, 0.0, f64::MAX / 4.0].into_iter().for_each(|value| bins.add(value));
        assert_eq!(bins.count(), 4);
        assert_eq!(bins.quantile_since(&earlier, 0.5), Some(0.0));
        assert!(bins.quantile_since(&earlier, 1.0).unwrap() > 1e16);
    }
}
