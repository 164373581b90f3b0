//! Gain of comparing the arms of a block with each other: how much of their spread they share.

use crate::Outcome;
use crate::statistics::mean;

/// Fewest blocks for a correlation.
const BLOCKS_MIN: usize = 8;
/// One-sided 5 % point of the standard normal distribution.
const NORMAL_95: f64 = 1.644_854;
/// Largest correlation whose transform is computed.
const CORRELATION_MAX: f64 = 0.999_999;

/// Spread that two arms share, block by block, in logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pairing {
    pub blocks: u32,
    /// Pearson's, of the logarithms of both arms' figures.
    pub correlation: f64,
    /// Variance of the ratio of unrelated trials over that of the trials of one block: the same interval takes so many times
    /// more blocks without pairs.
    pub gain: f64,
    /// True if the correlation is above 0 at 5 %, one-sided; otherwise no gain is claimed.
    pub is_shown: bool,
}

impl Pairing {
    /// Compares the values of two arms by block.
    ///
    /// Source: R. A. Fisher, On the "probable error" of a coefficient of correlation (Metron 1, 1921), for the test.
    ///
    /// - Returns `None` with fewer than eight blocks in which both are above 0, or if one of them never varies.
    pub fn new(arm: &[Option<f64>], baseline: &[Option<f64>]) -> Option<Self> {
        let logarithm = |value: &Option<f64>| value.filter(|value| *value > 0.0).map(f64::ln);
        let pairs: Vec<(f64, f64)> =
            arm.iter().zip(baseline).filter_map(|(a, b)| logarithm(a).zip(logarithm(b))).collect();
        if pairs.len() < BLOCKS_MIN {
            return None;
        }
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let (mean_a, mean_b) = (mean(&a)?, mean(&b)?);
        let sum = |each: fn(f64, f64) -> f64| {
            pairs.iter().map(|(a, b)| each(a - mean_a, b - mean_b)).sum::<f64>()
        };
        let (of_a, of_b) = (sum(|a, _| a * a), sum(|_, b| b * b));
        let of_ratio = sum(|a, b| (a - b) * (a - b));
        if of_a <= 0.0 || of_b <= 0.0 || of_ratio <= 0.0 {
            return None;
        }
        let correlation =
            (sum(|a, b| a * b) / (of_a * of_b).sqrt()).clamp(-CORRELATION_MAX, CORRELATION_MAX);
        let is_shown = correlation.atanh() * ((pairs.len() - 3) as f64).sqrt() > NORMAL_95;
        let gain = (of_a + of_b) / of_ratio;
        Some(Pairing { blocks: pairs.len() as u32, correlation, gain, is_shown })
    }
}

impl Outcome {
    /// Pairing of an arm with the baseline in a metric.
    pub fn pairing(&self, arm: &str, metric: &str) -> Option<Pairing> {
        let baseline = self.arms.first()?;
        let arm = self.arms.iter().find(|one| one.name == arm)?;
        Pairing::new(&arm.metrics.get(metric)?.trials, &baseline.metrics.get(metric)?.trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    /// Two arms that share a part of their spread.
    fn arms(shared: f64, own: f64, blocks: usize, seed: u64) -> [Vec<Option<f64>>; 2] {
        let mut random = Random::new(seed, 0);
        let mut arms = [Vec::new(), Vec::new()];
        for _ in 0..blocks {
            let common = shared * random.normal();
            for arm in &mut arms {
                arm.push(Some((3.0 + common + own * random.normal()).exp()));
            }
        }
        arms
    }

    #[test]
    fn arms_that_share_their_spread_gain_by_the_ratio_of_variances() {
        let [a, b] = arms(0.2, 0.05, 2_000, 1);
        let pairing = Pairing::new(&a, &b).unwrap();
        // (0.2² + 0.05²) / 0.05² = 17, and 0.2² / (0.2² + 0.05²) = 0.94.
        assert!((pairing.gain - 17.0).abs() < 1.5, "{pairing:?}");
        assert!((pairing.correlation - 0.941).abs() < 0.01 && pairing.is_shown, "{pairing:?}");
    }

    #[test]
    fn unrelated_arms_claim_no_gain_more_often_than_the_level() {
        let runs = 2_000;
        let claims = (0..runs).filter(|seed| {
            let [a, b] = arms(0.0, 0.1, 20, 100 + seed);
            Pairing::new(&a, &b).unwrap().is_shown
        });
        let share = claims.count() as f64 / runs as f64;
        assert!((0.03..0.07).contains(&share), "{share}");
    }

    #[test]
    fn few_blocks_and_constant_figures_have_no_pairing() {
        let [a, mut b] = arms(0.2, 0.05, 8, 3);
        assert_eq!(Pairing::new(&a, &b).unwrap().blocks, 8);
        b[3] = None;
        assert_eq!(Pairing::new(&a, &b), None, "seven blocks");
        let constant = vec![Some(5.0); 20];
        assert_eq!(Pairing::new(&constant, &constant), None);
    }
}
