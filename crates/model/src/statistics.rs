//! From paired log-ratios to a verdict. Deterministic: nothing here draws a number.
//!
//! # Interval
//! The interval of the median of log-ratios is built from order statistics: the pair
//! of ranks whose binomial coverage is just above the level, interpolated towards the
//! next inner pair. Sources: Hettmansperger and Sheather 1986, "Confidence intervals
//! based on interpolated order statistics", Statistics & Probability Letters 4, 75-79;
//! the binomial pairs: Thompson 1936.
//!
//! A bootstrap was tried and dropped: it promises more than it holds for a median of few
//! values, since resampling cannot see between them. How often an interval said to be of
//! 95 % held the truth, in per cent (normal; heavy-tailed; skewed log-ratios;
//! `cargo test -p wirepath-model --test coverage -- --nocapture`):
//!
//! | pairs | order statistics, interpolated | percentile bootstrap | BCa bootstrap |
//! |---|---|---|---|
//! | 6 | 95.3; 95.3; 95.1 | 94.2; 95.0; 93.6 | 93.4; 94.8; 93.0 |
//! | 7 | 94.7; 95.0; 94.4 | 88.7; 90.8; 88.7 | 88.5; 90.8; 88.5 |
//! | 10 | 95.2; 94.6; 95.2 | 92.0; 93.2; 92.0 | 91.1; 92.8; 91.2 |
//! | 15 | 94.7; 94.9; 94.8 | 91.5; 92.8; 91.5 | 90.9; 92.3; 90.9 |
//! | 20 | 95.1; 95.2; 95.1 | 94.1; 93.2; 94.2 | 93.6; 92.4; 93.8 |
//! | 30 | 94.9; 94.7; 94.9 | 95.7; 94.4; 95.6 | 95.0; 94.4; 94.9 |
//!
//! # p-value
//! A sign-flip permutation test over signed ranks (Wilcoxon 1945; zeros after Pratt
//! 1959; ties by mid-ranks): under "no difference" each log-ratio is as likely to have
//! either sign. Ranks, because one block that a CPU hog hit moves a sum of log-ratios by
//! more than all the others together. The permutation distribution is summed exactly up
//! to [`EXACT_PAIRS`] pairs; above, its normal approximation has the exact variance.
//!
//! # Verdict
//! See [`verdict`].

use crate::{Better, Floor, Verdict};

/// Level at which verdicts are given.
pub const LEVEL: f64 = 0.95;

/// Level at which the control arm is judged, and at which an early look must agree.
pub const STRICT_LEVEL: f64 = 0.99;

/// Pairs up to which the permutation distribution is exact.
pub const EXACT_PAIRS: usize = 40;

/// Fewest pairs that have an interval at [`LEVEL`].
pub const PAIRS_MIN: usize = 6;

/// An arm against the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Median of the paired ratios, arm over baseline.
    pub ratio: f64,
    /// Interval of `ratio` at the level asked for; `None` with too few pairs for it.
    pub interval: Option<Floor>,
    /// Two-sided permutation p-value against a ratio of 1.
    pub p: f64,
    /// Pairs behind it.
    pub pairs: usize,
}

/// Median; the mean of the middle two when there is an even number.
///
/// Returns `None` when empty. Values must not be NaN.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// ln(arm / baseline) for each block in which both gave a positive value.
pub fn log_ratios(arm: &[Option<f64>], baseline: &[Option<f64>]) -> Vec<f64> {
    arm.iter()
        .zip(baseline)
        .filter_map(|pair| match pair {
            (Some(arm), Some(base)) if *arm > 0.0 && *base > 0.0 => Some((arm / base).ln()),
            _ => None,
        })
        .filter(|ratio| ratio.is_finite())
        .collect()
}

/// Interval of the median at a level, in the values' own scale.
///
/// Returns `None` when even the smallest and the largest value cover less than the
/// level: below 6 values for 95 %, below 8 for 99 %.
pub fn interval(values: &[f64], level: f64) -> Option<(f64, f64)> {
    let n = values.len();
    // Coverage of the k-th smallest to the k-th largest: 1 - 2 P(Binomial(n, 1/2) < k).
    let mut ln_mass = -(n as f64) * std::f64::consts::LN_2;
    let mut outer = 1.0 - 2.0 * ln_mass.exp();
    if n == 0 || outer < level {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let mut k = 1;
    loop {
        ln_mass += ((n - k + 1) as f64 / k as f64).ln();
        let inner = outer - 2.0 * ln_mass.exp();
        if inner >= level && 2 * (k + 1) <= n {
            outer = inner;
            k += 1;
            continue;
        }
        let spare = ((outer - level) / (outer - inner)).clamp(0.0, 1.0);
        let weight = (n - k) as f64 * spare / (k as f64 + (n as f64 - 2.0 * k as f64) * spare);
        let mix = |outer: f64, inner: f64| outer + (inner - outer) * weight;
        return Some((mix(sorted[k - 1], sorted[k]), mix(sorted[n - k], sorted[n - k - 1])));
    }
}

/// Two-sided sign-flip permutation p-value of "as likely above 0 as below".
///
/// Returns 1 when no value differs from 0.
pub fn p_value(log_ratios: &[f64]) -> f64 {
    // Twice the mid-rank is a whole number, so that the sums can be counted.
    let mut sorted: Vec<f64> = log_ratios.to_vec();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    let mut ranks = Vec::with_capacity(sorted.len());
    let mut signed_sum = 0i64;
    let mut start = 0;
    for tied in sorted.chunk_by(|a, b| a.abs() == b.abs()) {
        let double_rank = (2 * start + tied.len() + 1) as i64;
        start += tied.len();
        // Pratt: zeros take their ranks and then no part.
        for value in tied.iter().filter(|value| **value != 0.0) {
            ranks.push(double_rank);
            signed_sum += if *value > 0.0 { double_rank } else { -double_rank };
        }
    }
    if ranks.is_empty() {
        return 1.0;
    }
    let seen = signed_sum.abs();
    let tail = if ranks.len() > EXACT_PAIRS { approximate_tail } else { exact_tail };
    tail(&ranks, seen).min(1.0)
}

/// Share of sign patterns whose signed sum of `ranks` is at least `seen` from 0.
fn exact_tail(ranks: &[i64], seen: i64) -> f64 {
    // mass[s]: share of sign patterns whose positive ranks sum to s.
    let total: i64 = ranks.iter().sum();
    let mut mass = vec![0.0f64; total as usize + 1];
    mass[0] = 1.0;
    let mut reached = 0;
    for &rank in ranks {
        let rank = rank as usize;
        reached += rank;
        for sum in (0..=reached).rev() {
            let with = if sum >= rank { mass[sum - rank] } else { 0.0 };
            mass[sum] = 0.5 * (mass[sum] + with);
        }
    }
    let beyond = |sum: &usize| (2 * *sum as i64 - total).abs() >= seen;
    (0..mass.len()).filter(beyond).map(|sum| mass[sum]).sum()
}

/// The same by the normal approximation.
fn approximate_tail(ranks: &[i64], seen: i64) -> f64 {
    let variance: f64 = ranks.iter().map(|rank| (rank * rank) as f64).sum();
    // 2: half the step between neighbouring sums, which are 4 apart when ranks differ.
    2.0 * normal_tail((seen as f64 - 2.0).max(0.0) / variance.sqrt())
}

/// Upper tail of the standard normal, to about 1e-7.
/// Source: Abramowitz and Stegun 26.2.17.
pub(crate) fn normal_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782
                + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * series
}

/// Paired log-ratios, summed up at a level; `None` when there is no pair.
pub fn compare(log_ratios: &[f64], level: f64) -> Option<Comparison> {
    Some(Comparison {
        ratio: median(log_ratios)?.exp(),
        interval: interval(log_ratios, level)
            .map(|(low, high)| Floor { low: low.exp(), high: high.exp() }),
        p: p_value(log_ratios),
        pairs: log_ratios.len(),
    })
}

/// What may be said of a variant: [`Verdict::Better`], [`Verdict::Worse`],
/// [`Verdict::NoDifferenceShown`] or [`Verdict::Inconclusive`].
///
/// - `comparison`: at the level whose complement `p` has to stay below.
/// - `floor`: the control arm's interval; `None` when there is none, and then nothing
///   is better or worse.
/// - `margin`: ratio up to which a difference does not matter, above 1.
///
/// Better or worse needs an interval clear of 1, a p-value below `1 - level`, and the
/// whole interval beyond the floor, taken symmetrically: beyond the larger of
/// `floor.high` and `1 / floor.low`. Otherwise no difference is shown when the interval
/// lies within the margin joined with the floor; else it is too wide to say.
///
/// Nothing is corrected for the number of arms and metrics. The floor stands in for it:
/// of 1,600 verdicts on switches without effect, none was better or worse
/// (`no_effect_is_found_where_there_is_none`).
pub fn verdict(
    comparison: &Comparison,
    level: f64,
    floor: Option<Floor>,
    margin: f64,
    better: Better,
) -> Verdict {
    let Some(floor) = floor else { return Verdict::Inconclusive };
    let reach = floor.high.max(1.0 / floor.low).max(1.0);
    judge(comparison, level, reach, widen(margin, Some(floor)), better)
}

/// What may be said of the control arm: as [`verdict`], without a floor.
///
/// `comparison` is at [`STRICT_LEVEL`]; with too few pairs for that level the control
/// cannot be better or worse. `fallback`, its interval at [`LEVEL`], says whether the
/// pair is close.
pub fn control_verdict(
    comparison: &Comparison,
    fallback: Option<Floor>,
    margin: f64,
    better: Better,
) -> Verdict {
    let negligible = widen(margin, None);
    match judge(comparison, STRICT_LEVEL, 1.0, negligible, better) {
        verdict @ (Verdict::Better | Verdict::Worse) => verdict,
        // Whether it is close is asked as of every arm, at the ordinary level.
        _ => {
            let interval = fallback.or(comparison.interval);
            let close = Comparison { interval, p: 1.0, ..*comparison };
            judge(&close, STRICT_LEVEL, 1.0, negligible, better)
        }
    }
}

fn widen(margin: f64, floor: Option<Floor>) -> Floor {
    let margin = margin.max(1.0);
    let floor = floor.unwrap_or(Floor { low: 1.0, high: 1.0 });
    Floor { low: floor.low.min(1.0 / margin), high: floor.high.max(margin) }
}

fn judge(
    comparison: &Comparison,
    level: f64,
    reach: f64,
    negligible: Floor,
    better: Better,
) -> Verdict {
    let Some(interval) = comparison.interval else { return Verdict::Inconclusive };
    let shown = comparison.p < 1.0 - level;
    let good = match better {
        Better::Lower => (Verdict::Better, Verdict::Worse),
        Better::Higher => (Verdict::Worse, Verdict::Better),
    };
    if shown && interval.high < 1.0 / reach {
        good.0
    } else if shown && interval.low > reach {
        good.1
    } else if interval.low >= negligible.low && interval.high <= negligible.high {
        Verdict::NoDifferenceShown
    } else {
        Verdict::Inconclusive
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(low: f64, high: f64, p: f64) -> Comparison {
        let interval = Some(Floor { low, high });
        Comparison { ratio: (low * high).sqrt(), interval, p, pairs: 12 }
    }

    fn judged(low: f64, high: f64, p: f64, floor: (f64, f64)) -> Verdict {
        let floor = Some(Floor { low: floor.0, high: floor.1 });
        verdict(&comparison(low, high, p), LEVEL, floor, 1.10, Better::Lower)
    }

    #[test]
    fn median_takes_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn pairs_with_a_hole_or_a_zero_are_left_out() {
        let arm = [Some(2.0), None, Some(0.0), Some(1.0)];
        let base = [Some(1.0), Some(1.0), Some(1.0), None];
        assert_eq!(log_ratios(&arm, &base), [2f64.ln()]);
    }

    #[test]
    fn six_values_have_an_interval_inside_their_range_and_five_have_none() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(interval(&values[..5], LEVEL), None);
        let (low, high) = interval(&values, LEVEL).unwrap();
        // Worked by hand: pairs cover 0.96875 and 0.78125; I = 0.1, weight = 0.5 / 1.4.
        assert!((low - (1.0 + 0.5 / 1.4)).abs() < 1e-9, "{low}");
        assert!((low + high - 7.0).abs() < 1e-9);
        assert_eq!(interval(&values, STRICT_LEVEL), None);
    }

    #[test]
    fn interval_is_that_of_published_tables() {
        // n = 9: ranks 2 and 8 cover 96.1 %; n = 30: ranks 10 and 21 cover 95.7 %.
        let ranks = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        let (low, high) = interval(&ranks(9), 0.9609).unwrap();
        assert!((low - 2.0).abs() < 0.01 && (high - 8.0).abs() < 0.01, "{low} {high}");
        let (low, high) = interval(&ranks(30), 0.9572).unwrap();
        assert!((low - 10.0).abs() < 0.01 && (high - 21.0).abs() < 0.01, "{low} {high}");
    }

    #[test]
    fn interval_of_thousands_does_not_underflow() {
        let values: Vec<f64> = (0..4001).map(f64::from).collect();
        let (low, high) = interval(&values, LEVEL).unwrap();
        assert!((1930.0..1945.0).contains(&low) && (2055.0..2070.0).contains(&high));
    }

    #[test]
    fn p_value_counts_sign_patterns() {
        // All six on one side: 2 of 64 patterns.
        assert!((p_value(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) - 2.0 / 64.0).abs() < 1e-12);
        // Only the smallest on the other side: 4 of 64.
        assert!((p_value(&[-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) - 4.0 / 64.0).abs() < 1e-12);
        assert_eq!(p_value(&[0.0; 8]), 1.0);
        assert_eq!(p_value(&[]), 1.0);
    }

    #[test]
    fn p_value_is_that_of_full_enumeration_with_ties_and_zeros() {
        let values: [f64; 9] = [0.0, 0.3, -0.3, 0.5, 0.5, -0.1, 0.9, 1.5, 0.3];
        // Mid-ranks of |values|, zeros included, by hand.
        let ranks: [f64; 9] = [1.0, 4.0, 4.0, 6.5, 6.5, 2.0, 8.0, 9.0, 4.0];
        let seen: f64 = values.iter().zip(ranks).map(|(v, r)| v.signum() * r).sum::<f64>() - 1.0;
        let patterns = 1u32 << 8;
        let beyond = (0..patterns)
            .filter(|pattern| {
                let sum: f64 = (0..8)
                    .map(|i| if pattern >> i & 1 == 1 { ranks[i + 1] } else { -ranks[i + 1] })
                    .sum();
                sum.abs() >= seen.abs() - 1e-9
            })
            .count();
        let expected = beyond as f64 / f64::from(patterns);
        assert!((p_value(&values) - expected).abs() < 1e-12);
    }

    #[test]
    fn normal_approximation_meets_the_exact_sum() {
        let ranks: Vec<i64> = (1..=40).map(|rank| 2 * rank).collect();
        for seen in [0, 200, 400, 600, 800] {
            let (exact, near) = (exact_tail(&ranks, seen), approximate_tail(&ranks, seen));
            assert!((exact - near).abs() < 0.005, "{seen}: {exact} {near}");
        }
        assert!((normal_tail(1.96) - 0.025).abs() < 1e-4);
    }

    #[test]
    fn better_needs_the_whole_interval_beyond_the_floor() {
        assert_eq!(judged(0.65, 0.75, 0.01, (0.95, 1.04)), Verdict::Better);
        assert_eq!(judged(1.20, 1.40, 0.01, (0.95, 1.04)), Verdict::Worse);
        // Clear of 1, but not beyond 1 / 1.08: the floor is taken symmetrically.
        assert_eq!(judged(0.92, 0.95, 0.01, (0.99, 1.08)), Verdict::NoDifferenceShown);
        assert_eq!(judged(0.70, 0.94, 0.01, (0.99, 1.08)), Verdict::Inconclusive);
        // Beyond the floor, but the permutation test does not agree.
        assert_eq!(judged(0.65, 0.75, 0.06, (0.95, 1.04)), Verdict::Inconclusive);
    }

    #[test]
    fn no_difference_is_shown_only_by_a_narrow_interval() {
        assert_eq!(judged(0.95, 1.05, 0.6, (0.99, 1.01)), Verdict::NoDifferenceShown);
        assert_eq!(judged(0.85, 1.15, 0.6, (0.99, 1.01)), Verdict::Inconclusive);
    }

    #[test]
    fn higher_is_better_turns_the_verdict_round() {
        let floor = Some(Floor { low: 0.99, high: 1.01 });
        let judged =
            |low, high| verdict(&comparison(low, high, 0.001), LEVEL, floor, 1.10, Better::Higher);
        assert_eq!(judged(1.5, 1.6), Verdict::Better);
        assert_eq!(judged(0.5, 0.6), Verdict::Worse);
    }

    #[test]
    fn nothing_is_better_without_a_floor() {
        let clear = comparison(0.5, 0.6, 0.001);
        let verdict = verdict(&clear, LEVEL, None, 1.10, Better::Lower);
        assert_eq!(verdict, Verdict::Inconclusive);
    }

    #[test]
    fn control_is_judged_at_one_per_cent() {
        let judged = |p| control_verdict(&comparison(1.02, 1.05, p), None, 1.10, Better::Lower);
        assert_eq!(judged(0.005), Verdict::Worse);
        assert_eq!(judged(0.02), Verdict::NoDifferenceShown);
    }
}
