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
pub struct RankBets {
    /// Distances from the center, ascending.
    distances: Vec<f64>,
    up: Capital,
    down: Capital,
}

impl RankBets {
    /// No bet yet: evidence of 1 on both sides.
    pub fn new() -> Self {
        let start = Capital([1.0; BETS.len()]);
        RankBets { distances: Vec::new(), up: start.clone(), down: start }
    }

    /// Takes the next difference, less the center. Its rank counts equal distances.
    pub fn add(&mut self, value: f64) {
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
    pub fn above(&self) -> f64 {
        self.up.mean()
    }

    /// Evidence that they lie below it.
    pub fn below(&self) -> f64 {
        self.down.mean()
    }
}

impl Default for RankBets {
    fn default() -> Self {
        RankBets::new()
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
pub fn interval(values: &[f64], least: usize, needed: f64) -> (Option<f64>, Option<f64>) {
    let negated: Vec<f64> = values.iter().map(|value| -value).collect();
    (lower_end(values, least, needed), lower_end(&negated, least, needed).map(|end| -end))
}

/// Relative to logarithms of ratios: 0.01 %.
const END_PRECISION: f64 = 1e-4;

fn lower_end(values: &[f64], least: usize, needed: f64) -> Option<f64> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let mut low = finite.iter().copied().reduce(f64::min)?;
    let mut high = finite.iter().copied().reduce(f64::max)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::Random;

    fn normals(seed: u64, count: usize, shift: f64) -> Vec<f64> {
        let mut random = Random::new(seed, 0);
        (0..count).map(|_| random.normal() + shift).collect()
    }

    #[test]
    fn evidence_is_a_fair_game_at_every_step() {
        let mut bets = RankBets::new();
        for value in normals(1, 60, 0.3) {
            let (mut up, mut down) = (bets.clone(), bets.clone());
            up.add(value);
            down.add(-value);
            for side in [RankBets::above, RankBets::below] {
                let mean = (side(&up) + side(&down)) / 2.0;
                assert!((mean - side(&bets)).abs() <= 1e-9 * mean, "{mean} {}", side(&bets));
            }
            bets.add(value);
        }
    }

    #[test]
    fn stake_is_the_rank_among_those_so_far() {
        let mut bets = RankBets::new();
        // Ranks 1 of 1, 1 of 2, 3 of 3 with its equal, and no stake for 0.
        for value in [2.0, 1.0, -2.0, 0.0] {
            bets.add(value);
        }
        let expected: f64 =
            BETS.iter().map(|bet| (1.0 + bet) * (1.0 + bet / 2.0) * (1.0 - bet)).sum();
        assert!((bets.above() - expected / BETS.len() as f64).abs() < 1e-12);
        assert_eq!(bets.distances, [0.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn infinite_differences_and_long_runs_stay_numbers() {
        let mut bets = RankBets::new();
        for _ in 0..5_000 {
            bets.add(f64::INFINITY);
        }
        assert!(bets.above().is_finite() && bets.above() > 1e100);
        assert!(bets.below() < 1e-6);
    }

    #[test]
    fn ends_of_the_interval_are_those_of_a_grid() {
        for seed in 0..10 {
            let values = normals(seed, 60, 0.5);
            let (low, high) = interval(&values, 18, 40.0);
            let (low, high) = (low.expect("a lower end"), high.expect("an upper end"));
            let negated: Vec<f64> = values.iter().map(|value| -value).collect();
            for step in -300..300 {
                let center = f64::from(step) / 100.0;
                assert_eq!(is_excluded(&values, center, 18, 40.0), center <= low, "{center} {low}");
                let is_above = is_excluded(&negated, -center, 18, 40.0);
                assert_eq!(is_above, center >= high, "{center} {high}");
            }
        }
    }

    #[test]
    fn interval_ends_where_values_are_infinite_or_too_few() {
        assert_eq!(interval(&normals(1, 17, 0.0), 18, 40.0), (None, None));
        assert_eq!(interval(&[], 18, 40.0), (None, None));
        assert_eq!(interval(&[f64::INFINITY; 30], 18, 40.0), (None, None));
        let mut values = normals(2, 40, 0.0);
        values.extend([f64::INFINITY; 8]);
        let (low, high) = interval(&values, 18, 40.0);
        assert!(low.is_some_and(f64::is_finite), "{low:?} {high:?}");
        // All values are the same: only that center is left.
        assert_eq!(interval(&[0.3; 40], 18, 40.0), (None, None));
    }
}
