//! One arm against both baselines, block by block.
//!
//! # Reference
//! The reference of a block is the mean of the logarithms of its two baseline trials. That finds a
//! true 5 % (3 % noise, 36 verdicts, 24 blocks) in 99.5 % of simulated runs, one baseline alone
//! in 95 %.
//!
//! # p-value
//! The larger of two, because each relies on something that the other does not:
//! - the signed-rank test of the log-ratios holds for arms of any noise, but needs symmetric noise.
//!   With skewed noise, the difference from a **mean** of two has another median than 0: 8 to 16 % of
//!   null runs were fooled;
//! - the relabelling test holds for noise of any shape, but needs the arm to be as noisy as the
//!   baseline: within a block, each of the three trials is as likely to be the arm's. Aligned ranks
//!   (Hodges and Lehmann 1962, Annals of Mathematical Statistics 33, 482-497).
//!
//! Neither holds for an arm that is noisier *and* skewed: the ranks then follow its mean, also where its median
//! is that of the baseline, and 23 % of null runs of 64 blocks were fooled by arms 10 times noisier. The
//! p-value of an arm whose log-ratios spread more than `NOISIER` times as far as the control's is therefore
//! also at least that of the sign test, which follows the median alone. Asked of every arm, the sign test would
//! cost too much: +5 % at 3 % noise was then found in 81.6 % of runs of 24 blocks, in place of 99.8 %.
//!
//! # Failed trials
//! A trial that failed or refused the metric takes the worst rank: an infinite time or a rate of 0.
//! Leaving it out made an arm that fails half its trials and is 15 % faster in the rest "better"
//! in 98 % of simulated runs.
//!
//! # Zeros
//! A time or size of 0 is below the resolution of the program that printed it: it takes the best rank, and its
//! logarithm is infinite. As the worst, it failed a branch that was seven times faster.
//!
//! # Counts
//! Losses and errors are 0 in a healthy build, so they have no ratio. They are compared by the same tests on plain
//! differences, and their interval is that of the mean (Student 1908): the median of 40 losses in every fifth trial is 0.

use crate::paired::{self, Comparison, finite};
use crate::{Better, CountDifference, Floor};

/// Number of blocks up to which the relabelling test is exact.
const EXACT_BLOCKS: usize = 20;

/// Spread of an arm's log-ratios over that of the control's, above which the arm counts as noisier: about 3
/// times the baseline's noise.
const NOISIER: f64 = 2.0;

/// p-value above which the normal approximation is enough: no verdict depends on it.
const EXACT_BELOW: f64 = 0.2;

/// Scale on which an arm is compared with its reference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// Ratios, as differences of logarithms.
    #[default]
    Ratio,
    /// Differences of counts per trial.
    Count,
}

impl Scale {
    /// A value on the scale.
    pub fn of(self, value: f64) -> f64 {
        match self {
            Scale::Ratio => value.ln(),
            Scale::Count => value,
        }
    }
}

/// Differences of one arm by block, on a scale.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pairs {
    /// Arm minus reference: of logarithms, or of counts; infinite if one of them failed, 0 if both did.
    pub differences: Vec<f64>,
    /// For each block with two baselines: the difference of the arm, the baseline and the control, each
    /// from the reference made of the two others.
    pub relabelled: Vec<[f64; 3]>,
    /// Scale of both.
    pub scale: Scale,
}

/// An arm against its reference, on the scale of its pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Median of log-ratios, mean of counts.
    pub center: f64,
    /// `None` with too few pairs.
    pub interval: Option<(f64, f64)>,
    /// Two-sided p-value of no shift.
    pub p: f64,
    /// Pairs behind it.
    pub pairs: usize,
}

/// Values of one arm: one per block, `None` if the trial failed, or is still to come in a block that is
/// not complete.
pub type Values<'a> = &'a [Option<f64>];

fn spread(values: &[f64]) -> Option<f64> {
    paired::median(values).filter(|spread| spread.is_finite())
}

impl Pairs {
    /// Pairs an arm with one or two baselines, by ratios.
    ///
    /// - `complete`: blocks that have ended; `None` means a failure in these, and a missing pair in later ones. A series that
    ///   is shorter is of an arm that did not run in the rest, as it was decided: that is no failure.
    pub fn new(
        arm: Values,
        baseline: Values,
        control: Option<Values>,
        complete: usize,
        better: Better,
    ) -> Self {
        Pairs::on(Scale::Ratio, arm, baseline, control, complete, better)
    }

    /// Pairs the figures of blocks in which no trial failed, by ratios.
    ///
    /// - `arm`, `baseline`, `control`: one figure for each block; the longer ones are cut.
    pub fn of_figures(
        arm: &[f64],
        baseline: &[f64],
        control: Option<&[f64]>,
        better: Better,
    ) -> Self {
        let blocks = arm.len().min(baseline.len());
        let given = |figures: &[f64]| -> Vec<Option<f64>> {
            figures.iter().take(blocks).copied().map(Some).collect()
        };
        let control = control.map(given);
        Pairs::new(&given(arm), &given(baseline), control.as_deref(), blocks, better)
    }

    /// As [`Pairs::new`], on any scale.
    pub fn on(
        scale: Scale,
        arm: Values,
        baseline: Values,
        control: Option<Values>,
        complete: usize,
        better: Better,
    ) -> Self {
        let worst = match better {
            Better::Lower => f64::INFINITY,
            Better::Higher => f64::NEG_INFINITY,
        };
        let complete = complete.min(arm.len()).min(baseline.len());
        let cell = |values: Values, block: usize| match values.get(block).copied().flatten() {
            Some(value) => Some(scale.of(value)),
            None => (block < complete).then_some(worst),
        };
        let mut pairs = Pairs { scale, ..Pairs::default() };
        for block in 0..arm.len().max(baseline.len()).max(complete) {
            let (Some(of), Some(base)) = (cell(arm, block), cell(baseline, block)) else {
                continue;
            };
            let Some(again) = control.and_then(|control| cell(control, block)) else {
                pairs.differences.push(difference(of, base));
                continue;
            };
            pairs.differences.push(difference(of, reference(base, again)));
            pairs.relabelled.push([
                difference(of, reference(base, again)),
                difference(base, reference(of, again)),
                difference(again, reference(of, base)),
            ]);
        }
        pairs
    }

    /// Pairs of groups of blocks, for blocks that are not independent of each other.
    ///
    /// - `summarize`: one value for each group, from one for each block; called for each kind of difference.
    pub fn grouped(&self, summarize: impl Fn(&[f64]) -> Vec<f64>) -> Pairs {
        let [arm, base, again] = [0, 1, 2].map(|place| {
            let column: Vec<f64> = self.relabelled.iter().map(|of| of[place]).collect();
            summarize(&column)
        });
        let rows = arm.iter().zip(&base).zip(&again);
        Pairs {
            differences: summarize(&self.differences),
            relabelled: rows.map(|((arm, base), again)| [*arm, *base, *again]).collect(),
            scale: self.scale,
        }
    }

    /// Compares ratios at a level; `None` without a pair.
    pub fn compare(&self, level: f64) -> Option<Comparison> {
        Some(self.shift(level)?.as_ratio())
    }

    /// Interval of the shift at a level; `None` with too few pairs.
    pub fn shift_interval(&self, level: f64) -> Option<(f64, f64)> {
        match self.scale {
            Scale::Ratio => paired::interval(&self.differences, level),
            Scale::Count => paired::interval_of_mean(&self.measured(), level),
        }
    }

    /// Differences of trials that did not fail, which are judged by their number; here they would make every mean infinite.
    fn measured(&self) -> Vec<f64> {
        self.differences.iter().copied().filter(|difference| difference.is_finite()).collect()
    }

    /// Compares at a level; `None` without a pair.
    pub fn shift(&self, level: f64) -> Option<Shift> {
        let center = match self.scale {
            Scale::Ratio => paired::median(&self.differences)?,
            Scale::Count => paired::mean(&self.measured())?,
        };
        let interval = self.shift_interval(level);
        let mut p = paired::p_value(&self.differences).max(relabelling_p(&self.relabelled));
        if self.is_noisier() {
            p = p.max(sign_p(&self.differences));
        }
        Some(Shift { center, interval, p, pairs: self.differences.len() })
    }

    /// True if the log-ratios of the arm spread more than [`NOISIER`] times as far as those of the control
    /// over the baseline.
    fn is_noisier(&self) -> bool {
        let Some(middle) = paired::median(&self.differences) else { return false };
        let own: Vec<f64> =
            self.differences.iter().map(|ratio| difference(*ratio, middle).abs()).collect();
        // Of [arm, baseline, control], each over the mean of the others: the last two differ by 3/2 of it.
        let base = self.relabelled.iter().map(|of| difference(of[1], of[2]).abs() / 1.5);
        match (spread(&own), spread(&base.collect::<Vec<f64>>())) {
            (Some(own), Some(base)) => own > NOISIER * base,
            _ => false,
        }
    }
}

impl Shift {
    /// The shift of logarithms as a ratio.
    pub fn as_ratio(self) -> Comparison {
        let interval = self.interval.map(|(low, high)| Floor { low: low.exp(), high: high.exp() });
        Comparison { ratio: self.center.exp(), interval, p: self.p, pairs: self.pairs }
    }

    /// The shift of counts, in events per trial.
    pub fn as_count(self) -> CountDifference {
        CountDifference {
            mean: self.center,
            low: self.interval.and_then(|(low, _)| finite(low)),
            high: self.interval.and_then(|(_, high)| finite(high)),
        }
    }
}

/// Two-sided p-value of the sign test; values of 0 are left out.
///
/// Source: Arbuthnott 1710, Philosophical Transactions 27, 186-190.
fn sign_p(differences: &[f64]) -> f64 {
    let above = differences.iter().filter(|ratio| **ratio > 0.0).count();
    let below = differences.iter().filter(|ratio| **ratio < 0.0).count();
    let (count, fewer) = (above + below, above.min(below));
    // mass: share of sign patterns with `fewer` or less of one sign.
    let mut share = 0.5f64.powi(count as i32);
    let mut mass = 0.0;
    for of in 0..=fewer {
        mass += share;
        share *= (count - of) as f64 / (of + 1) as f64;
    }
    (2.0 * mass).min(1.0)
}

/// Mean of two values on the scale; the other one if one trial failed or gave a time of 0.
fn reference(one: f64, other: f64) -> f64 {
    match (one.is_finite(), other.is_finite()) {
        (true, false) => one,
        (false, true) => other,
        (true, true) => (one + other) / 2.0,
        // Of a failure and a time of 0, the time was measured.
        (false, false) => one.min(other),
    }
}

/// Difference of two logarithms; 0 if both trials failed.
fn difference(one: f64, other: f64) -> f64 {
    if one == other { 0.0 } else { one - other }
}

/// Three times the distance of the arm's rank sum from its mean, which is a whole number.
fn rank_distance(of: &[i64; 3], arm: usize) -> i64 {
    3 * of[arm] - of.iter().sum::<i64>()
}

/// Two-sided p-value of "each of the three trials of a block is as likely to be the arm's"; 0 if there
/// is no block with two baselines, so that it never decides then.
fn relabelling_p(blocks: &[[f64; 3]]) -> f64 {
    if blocks.is_empty() {
        return 0.0;
    }
    let ranks = double_ranks(blocks);
    let seen: i64 = ranks.iter().map(|of| rank_distance(of, 0)).sum::<i64>().abs();
    let variance: f64 = ranks
        .iter()
        .flat_map(|of| (0..3).map(|arm| (rank_distance(of, arm) as f64).powi(2) / 3.0))
        .sum();
    if seen == 0 || variance == 0.0 {
        return 1.0;
    }
    let near = 2.0 * paired::normal_tail(seen as f64 / variance.sqrt());
    if blocks.len() > EXACT_BLOCKS || near > EXACT_BELOW {
        return near.min(1.0);
    }
    exact_relabelling(&ranks, seen)
}

/// Twice the mid-rank of each value among all.
fn double_ranks(blocks: &[[f64; 3]]) -> Vec<[i64; 3]> {
    let mut order: Vec<(f64, usize)> =
        blocks.iter().flatten().copied().enumerate().map(|(at, value)| (value, at)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ranks = vec![[0; 3]; blocks.len()];
    let mut start = 0;
    for tied in order.chunk_by(|a, b| a.0 == b.0) {
        let double = (2 * start + tied.len() + 1) as i64;
        start += tied.len();
        tied.iter().for_each(|(_, at)| ranks[at / 3][at % 3] = double);
    }
    ranks
}

fn lowest_rank(of: &[i64; 3]) -> i64 {
    of.iter().copied().min().unwrap_or_default()
}

/// Share of relabellings whose rank sum is at least `seen` thirds from its mean.
fn exact_relabelling(ranks: &[[i64; 3]], seen: i64) -> f64 {
    let base: i64 = ranks.iter().map(lowest_rank).sum();
    // Above the sum of each block's lowest rank.
    let shares = paired::shares_by_sum(
        ranks.iter().map(|of| of.map(|rank| (rank - lowest_rank(of)) as usize)),
    );
    let total: i64 = ranks.iter().flatten().sum();
    (0..shares.len())
        .filter(|sum| (3 * (base + *sum as i64) - total).abs() >= seen)
        .map(|sum| shares[sum])
        .sum::<f64>()
        .min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired::LEVEL;
    use model::Random;

    fn some(values: &[f64]) -> Vec<Option<f64>> {
        values.iter().copied().map(Some).collect()
    }

    #[test]
    fn reference_is_the_geometric_mean_of_both_baselines() {
        let pairs = Pairs::new(&some(&[8.0]), &some(&[2.0]), Some(&some(&[8.0])), 1, Better::Lower);
        assert!((pairs.differences[0] - 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn figures_without_failures_are_paired_as_values_are() {
        let (arm, base, again) = ([1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0], [2.0, 1.0, 2.0]);
        assert_eq!(
            Pairs::of_figures(&arm, &base, Some(&again), Better::Lower),
            Pairs::new(&some(&arm[..3]), &some(&base), Some(&some(&again)), 3, Better::Lower)
        );
    }

    #[test]
    fn failed_trial_takes_the_worst_rank_in_either_direction() {
        let (arm, base) = ([None, Some(1.0), None], [Some(1.0), None, None]);
        let pairs = |better| Pairs::new(&arm, &base, None, 3, better).differences;
        assert_eq!(pairs(Better::Lower), [f64::INFINITY, f64::NEG_INFINITY, 0.0]);
        assert_eq!(pairs(Better::Higher), [f64::NEG_INFINITY, f64::INFINITY, 0.0]);
    }

    #[test]
    fn failed_baseline_trial_leaves_the_other_as_reference() {
        let pairs = Pairs::new(&some(&[4.0]), &[None], Some(&some(&[2.0])), 1, Better::Lower);
        assert!((pairs.differences[0] - 2f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn block_after_an_arm_was_decided_is_not_its_failure() {
        let (arm, base) = (some(&[1.0, 1.0]), some(&[1.0; 5]));
        assert_eq!(Pairs::new(&arm, &base, Some(&base), 5, Better::Lower).differences, [0.0; 2]);
    }

    #[test]
    fn block_that_is_not_complete_has_no_pair_without_a_value() {
        let (arm, base) = (some(&[1.0]), some(&[1.0, 1.0]));
        assert_eq!(Pairs::new(&arm, &base, None, 1, Better::Lower).differences, [0.0]);
    }

    #[test]
    fn exact_relabelling_is_that_of_full_enumeration() {
        let mut random = Random::new(3, 0);
        let blocks: Vec<[f64; 3]> = (0..6)
            .map(|_| [random.normal() - 1.5, random.normal(), (random.normal() * 2.0).round()])
            .collect();
        let ranks = double_ranks(&blocks);
        let total: i64 = ranks.iter().flatten().sum();
        let seen = |pattern: usize| {
            let sum: i64 =
                (0..6).map(|block| ranks[block][pattern / 3usize.pow(block as u32) % 3]).sum();
            (3 * sum - total).abs()
        };
        let patterns = 3usize.pow(6);
        let beyond = (0..patterns).filter(|&pattern| seen(pattern) >= seen(0)).count();
        let expected = beyond as f64 / patterns as f64;
        let found = exact_relabelling(&ranks, seen(0));
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }

    #[test]
    fn approximation_meets_the_exact_sum() {
        let mut random = Random::new(4, 0);
        for shift in [0.3, 0.6, 0.9] {
            let blocks: Vec<[f64; 3]> = (0..EXACT_BLOCKS)
                .map(|_| [random.normal() + shift, random.normal(), random.normal()])
                .collect();
            let exact = relabelling_p(&blocks);
            let many: Vec<[f64; 3]> = blocks.iter().copied().cycle().take(EXACT_BLOCKS).collect();
            let ranks = double_ranks(&many);
            let seen = ranks.iter().map(|of| 3 * of[0] - of.iter().sum::<i64>()).sum::<i64>().abs();
            let exactly = exact_relabelling(&ranks, seen);
            assert!((exact - exactly).abs() < 0.02, "{shift}: {exact} {exactly}");
        }
    }

    /// R: binom.test(2, 12)$p.value, binom.test(0, 12)$p.value, binom.test(6, 12)$p.value
    fn signs(below: usize) -> Vec<f64> {
        (0..14)
            .map(|at| {
                if at < 2 {
                    0.0
                } else if at < 2 + below {
                    -1.0
                } else {
                    2.0
                }
            })
            .collect()
    }

    #[test]
    fn sign_test_is_the_binomial_sum_without_zeros() {
        for (below, expected) in [(2, 0.03857421875), (0, 0.00048828125), (6, 1.0)] {
            assert!((sign_p(&signs(below)) - expected).abs() < 1e-12, "{below}");
            assert!((sign_p(&signs(12 - below)) - expected).abs() < 1e-12, "{below}");
        }
        assert_eq!(sign_p(&[0.0; 9]), 1.0);
    }

    fn pairs(spread: f64) -> Pairs {
        let mut random = Random::new(7, 0);
        let mut values = |scale: f64| -> Vec<Option<f64>> {
            (0..24).map(|_| Some((scale * random.normal()).exp())).collect()
        };
        let (arm, base, again) = (values(0.03 * spread), values(0.03), values(0.03));
        Pairs::new(&arm, &base, Some(&again), 24, Better::Lower)
    }

    #[test]
    fn only_an_arm_that_spreads_further_than_the_control_is_noisier() {
        assert_eq!(
            [1.0, 2.0, 5.0, 10.0].map(|of| pairs(of).is_noisier()),
            [false, false, true, true]
        );
        let noisy = pairs(10.0);
        assert!(noisy.compare(LEVEL).unwrap().p >= sign_p(&noisy.differences));
        // Failed trials have no spread.
        let failed =
            Pairs::new(&[None; 8], &[Some(1.0); 8], Some(&[Some(1.1); 8]), 8, Better::Lower);
        assert!(!failed.is_noisier());
    }

    #[test]
    fn clear_shift_is_found_by_both_tests() {
        let base = some(&[1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0]);
        let again = some(&[1.01, 0.99, 1.0, 1.0, 1.01, 0.99, 1.0, 1.01, 0.98, 1.0, 1.0, 1.01]);
        let arm = some(&[0.8, 0.81, 0.79, 0.82, 0.78, 0.8, 0.81, 0.79, 0.8, 0.82, 0.78, 0.8]);
        let found = Pairs::new(&arm, &base, Some(&again), 12, Better::Lower);
        let found = found.compare(LEVEL).unwrap();
        assert!(found.p < 0.001 && found.interval.unwrap().high < 0.85, "{found:?}");
    }
}
