//! Bets on the sign of differences: evidence that holds at every look.
//!
//! If the differences of pairs lie symmetrically around `c`, the sign of `d - c` is a fair coin whatever its size and whatever
//! came before. A player who stakes a share `bet * weight` of the capital on that coin expects to keep what she has; a capital
//! that ever reaches `1 / alpha` times its start has a probability of at most `alpha` (Ville 1939). The weight is the rank of
//! `|d - c|` among those so far: it must be known before the sign, and that rank is. With sizes as weights one burst costs as
//! much as all other pairs together.
//!
//! Sources: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", Journal of the Royal
//! Statistical Society B 86, 1-27; weights: Wilcoxon 1945.

/// Shares staked; the mean over all of them needs no guess of the effect.
const BETS: [f64; 6] = [0.08, 0.16, 0.3, 0.5, 0.75, 0.98];

/// Capital is not counted beyond: products would overflow.
const CAPITAL_MAX: f64 = 1e200;

/// Capital of six bets on one side of a center.
#[derive(Debug, Clone)]
struct Capital([f64; BETS.len()]);

impl Capital {
    fn add(&mut self, stake: f64) {
        for (capital, bet) in self.0.iter_mut().zip(BETS) {
            *capital = (*capital * (1.0 + bet * stake)).min(CAPITAL_MAX);
        }
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / BETS.len() as f64
    }
}

/// Bets that differences lie above a center, and bets that they lie below it: twelve in all.
#[derive(Debug, Clone)]
pub(super) struct RankBets {
    /// Distances from the center, ascending.
    distances: Vec<f64>,
    up: Capital,
    down: Capital,
}

impl RankBets {
    pub(super) fn new() -> Self {
        let start = Capital([1.0; BETS.len()]);
        RankBets { distances: Vec::new(), up: start.clone(), down: start }
    }

    /// Takes the next difference, less the center. Its rank counts equal distances.
    pub(super) fn add(&mut self, value: f64) {
        let distance = value.abs();
        let rank = self.distances.partition_point(|other| *other <= distance);
        self.distances.insert(rank, distance);
        if value == 0.0 {
            return;
        }
        let stake = (rank + 1) as f64 / self.distances.len() as f64 * value.signum();
        self.up.add(stake);
        self.down.add(-stake);
    }

    /// Evidence that the differences lie above the center.
    pub(super) fn above(&self) -> f64 {
        self.up.mean()
    }

    /// Evidence that they lie below it.
    pub(super) fn below(&self) -> f64 {
        self.down.mean()
    }
}

/// Interval of the center of symmetry that holds at every length of `values` from `least` on: the centers that neither side's
/// evidence excluded at any of these lengths.
///
/// - `needed`: evidence of one side that excludes.
/// - Returns for each end `None` if nothing is excluded on its side.
///
/// The stake of a value, its signed rank, falls or stays as the center rises, for each value by itself: `|d_j - c| <= d - c`
/// says `d_j <= d` and `(d_j + d) / 2 >= c`. So does the evidence of "above": the centers that it excludes reach from minus
/// infinity to a bound, which bisection finds.
pub(super) fn interval(values: &[f64], least: usize, needed: f64) -> (Option<f64>, Option<f64>) {
    let negated: Vec<f64> = values.iter().map(|value| -value).collect();
    (lower_end(values, least, needed), lower_end(&negated, least, needed).map(|end| -end))
}

/// Relative to logarithms of ratios: 0.01 %.
const END_PRECISION: f64 = 1e-4;

fn lower_end(values: &[f64], least: usize, needed: f64) -> Option<f64> {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (mut low, mut high) = (finite().reduce(f64::min)?, finite().reduce(f64::max)?);
    // Excluded with the smallest value itself: that value stakes nothing.
    if !is_excluded(values, low, least, needed) {
        return None;
    }
    let precision = END_PRECISION.min((high - low) * END_PRECISION);
    while high - low > precision && precision > 0.0 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if is_excluded(values, middle, least, needed) { low = middle } else { high = middle }
    }
    Some(low)
}

fn is_excluded(values: &[f64], center: f64, least: usize, needed: f64) -> bool {
    let mut bets = RankBets::new();
    values.iter().enumerate().any(|(index, value)| {
        bets.add(value - center);
        index + 1 >= least && bets.above() >= needed
    })
}
