//! Shift between two independent samples, for two runs that were not interleaved.
//!
//! Within an experiment, arms are compared block by block, so that drift of the machine cancels.
//! Between two experiments there are no blocks to pair. The estimate is the median of all differences
//! between a value of one sample and one of the other, its interval is the inversion of the rank-sum
//! test, and p is that test's. No distribution is assumed, and a single trial disturbed by a CPU hog
//! affects none of the three by much.
//!
//! Sources: Hodges and Lehmann 1963, "Estimates of location based on rank tests", Annals of
//! Mathematical Statistics 34, 598-611; Mann and Whitney 1947, Annals of Mathematical
//! Statistics 18, 50-60.

use crate::paired::{Comparison, median, normal_tail};
use crate::pairs::Shift;

/// Values in both samples together up to which the rank-sum distribution is exact.
const EXACT_VALUES: usize = 40;

/// ln(new / old) of two independent samples of logarithms, summed up at a level.
///
/// - `new`, `old`: natural logarithms, finite, in any order.
/// - Returns `None` if either is empty. `pairs` is the size of the smaller sample; the
///   interval is `None` if the samples are too small for the level.
pub fn compare(new: &[f64], old: &[f64], level: f64) -> Option<Comparison> {
    Some(shift(new, old, level)?.as_ratio())
}

/// As [`compare`], in the values' own scale.
pub fn shift(new: &[f64], old: &[f64], level: f64) -> Option<Shift> {
    let mut differences: Vec<f64> =
        new.iter().flat_map(|new| old.iter().map(move |old| new - old)).collect();
    differences.sort_by(f64::total_cmp);
    let center = median(&differences)?;
    let tails = Tails::of(new.len(), old.len());
    // U counts the pairs in which new is larger; a tie counts half.
    let larger = differences.iter().filter(|d| **d > 0.0).count() as f64;
    let tied = differences.iter().filter(|d| **d == 0.0).count() as f64;
    let u = larger + tied / 2.0;
    let far = u.min(differences.len() as f64 - u);
    // Half ties round towards the middle, which claims less.
    let p = (2.0 * tails.at_most(far.ceil() as usize)).min(1.0);
    let interval = tails
        .trim((1.0 - level) / 2.0)
        .map(|trim| (differences[trim], differences[differences.len() - 1 - trim]));
    Some(Shift { center, interval, p, pairs: new.len().min(old.len()) })
}

/// The lower tail of the rank-sum statistic U under "no difference".
enum Tails {
    /// P(U ≤ u), by u.
    Exact(Vec<f64>),
    /// Mean and deviation of the normal approximation.
    Normal(f64, f64),
}

impl Tails {
    fn of(n: usize, m: usize) -> Self {
        let pairs = n * m;
        if n + m > EXACT_VALUES {
            let variance = pairs as f64 * (n + m + 1) as f64 / 12.0;
            return Tails::Normal(pairs as f64 / 2.0, variance.sqrt());
        }
        // ways[j][u]: choices of j of the values seen so far as the first sample, with u
        // pairs in which it is the larger. Each next value is larger than all before.
        let mut ways = vec![vec![0.0f64; pairs + 1]; n + 1];
        ways[0][0] = 1.0;
        for seen in 0..n + m {
            for j in (1..=n.min(seen + 1)).rev() {
                let gained = seen + 1 - j;
                if gained > m {
                    continue;
                }
                for u in (gained..=pairs).rev() {
                    let with = ways[j - 1][u - gained];
                    ways[j][u] += with;
                }
            }
        }
        let all: f64 = ways[n].iter().sum();
        let mut below = 0.0;
        let tail = ways[n].iter().map(|count| {
            below += count / all;
            below
        });
        Tails::Exact(tail.collect())
    }

    fn at_most(&self, u: usize) -> f64 {
        match self {
            Tails::Exact(tail) => tail.get(u).copied().unwrap_or(1.0),
            Tails::Normal(mean, deviation) => {
                // One half: the distribution is of whole numbers.
                let z = (mean - u as f64 - 0.5) / deviation;
                if z < 0.0 { 1.0 } else { normal_tail(z) }
            }
        }
    }

    /// Differences to leave out at each end so that no more than `share` lies beyond it.
    fn trim(&self, share: f64) -> Option<usize> {
        match self {
            Tails::Exact(tail) => tail.iter().take_while(|p| **p <= share).count().checked_sub(1),
            Tails::Normal(mean, _) => {
                let (mut low, mut high) = (0, *mean as usize);
                if self.at_most(0) > share {
                    return None;
                }
                while low + 1 < high {
                    let middle = (low + high) / 2;
                    if self.at_most(middle) <= share { low = middle } else { high = middle }
                }
                Some(low)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Random;

    fn normal(random: &mut Random) -> f64 {
        random.normal()
    }

    #[test]
    fn tails_are_those_of_published_tables() {
        // Critical U, two-sided 5 %: 5 and 5 values, 2; 6 and 6, 5; 8 and 8, 13; 20 and 20, 127.
        for (n, critical) in [(5, 2), (6, 5), (8, 13), (20, 127)] {
            let tails = Tails::of(n, n);
            assert!(tails.at_most(critical) <= 0.025, "{n}");
            assert!(tails.at_most(critical + 1) > 0.025, "{n}");
            assert_eq!(tails.trim(0.025), Some(critical), "{n}");
        }
        // Three against three can never be at 5 %; four against four can, all on one side.
        assert_eq!(Tails::of(3, 3).trim(0.025), None);
        assert_eq!(Tails::of(4, 4).trim(0.025), Some(0));
    }

    #[test]
    fn the_approximation_joins_the_exact_distribution() {
        let exact = Tails::of(20, 20);
        let variance: f64 = 400.0 * 41.0 / 12.0;
        let normal = Tails::Normal(200.0, variance.sqrt());
        for u in [90, 110, 127, 150, 180, 199] {
            let (a, b) = (exact.at_most(u), normal.at_most(u));
            assert!((a - b).abs() < 0.002, "{u}: {a} and {b}");
        }
    }

    #[test]
    fn an_interval_of_95_percent_holds_the_truth_so_often() {
        let mut random = Random::new(7, 0);
        for (n, m) in [(6, 6), (12, 9), (30, 40)] {
            let mut held = 0;
            for _ in 0..1_000 {
                let new: Vec<f64> = (0..n).map(|_| 0.2 + normal(&mut random)).collect();
                let old: Vec<f64> = (0..m).map(|_| normal(&mut random)).collect();
                let interval = compare(&new, &old, 0.95).unwrap().interval.unwrap();
                let truth = 0.2f64.exp();
                held += u32::from(interval.low <= truth && truth <= interval.high);
            }
            assert!((932..=985).contains(&held), "{n} and {m}: {held} of 1000");
        }
    }

    #[test]
    fn equal_samples_show_nothing_and_empty_ones_say_nothing() {
        let same = compare(&[1.0; 8], &[1.0; 8], 0.95).unwrap();
        assert_eq!((same.ratio, same.p), (1.0, 1.0));
        assert!(compare(&[], &[1.0], 0.95).is_none());
        let far = compare(&[3.0, 3.1, 3.2, 3.3], &[1.0, 1.1, 1.2, 1.3], 0.95).unwrap();
        assert!((far.p - 2.0 / 70.0).abs() < 1e-12, "{}", far.p);
    }
}
