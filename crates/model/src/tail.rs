//! Tails over all trials of an arm.
//!
//! The median of per-trial p99s describes the typical trial. A fault in one trial of ten that multiplies
//! the p99 by ten leaves it unmoved: with 15 % taken off all other trials, such an arm was "better" in 67 %
//! of simulated runs. Therefore a tail is judged twice more: over the samples of all trials
//! together, and by the worst tenth of the trials.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Random;

/// Resamplings of the blocks.
const RESAMPLINGS: usize = 499;

/// A ratio of arm over baseline with its 95 % interval, by resampling whole blocks (Efron and Tibshirani
/// 1993, "An Introduction to the Bootstrap", chapter 13).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    /// Arm over baseline; `null` if the arm's is infinite.
    #[serde(deserialize_with = "infinite")]
    pub ratio: f64,
    /// Lower end of the interval.
    #[serde(deserialize_with = "infinite")]
    pub low: f64,
    /// Upper end of the interval.
    #[serde(deserialize_with = "infinite")]
    pub high: f64,
}

/// JSON has no infinity; `null` is written for it.
fn infinite<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
}

/// Tail of one arm over that of both baselines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tail {
    /// The quantile over the samples of all trials; `None` without samples, as for other programs.
    pub pooled: Option<Estimate>,
    /// Mean of the worst tenth of the per-trial figures, at least one.
    pub worst_decile: Option<Estimate>,
}

/// Latencies of one trial: distinct values, largest first, with their counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Samples {
    buckets: Vec<(u64, u64)>,
    count: f64,
    /// Datagrams lost beside them, which are infinitely late.
    lost: f64,
}

impl Samples {
    pub(crate) fn new(histogram: &Histogram<u64>, lost: f64) -> Self {
        let mut buckets: Vec<(u64, u64)> = (histogram.iter_recorded())
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect();
        buckets.reverse();
        Samples { buckets, count: histogram.len() as f64, lost }
    }
}

/// One trial of an arm: its block, its samples if it has any, and its own figure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial<'a> {
    pub(crate) block: usize,
    pub(crate) samples: Option<&'a Samples>,
    /// `None` if it failed, which is the worst.
    pub(crate) figure: Option<f64>,
}

/// Compares the tail of `arm` with that of `base`, both baselines together.
///
/// - `blocks`: number of blocks; trials of later ones are left out.
/// - `quantile`: 0.99 for p99.
pub(crate) fn tail(
    arm: &[Trial],
    base: &[Trial],
    blocks: usize,
    quantile: f64,
    seed: u64,
) -> Option<Tail> {
    if blocks == 0 {
        return None;
    }
    let (arm_pool, base_pool) = (Pool::new(arm, blocks), Pool::new(base, blocks));
    let pooled = |weights: &[u32]| {
        Some(
            arm_pool.as_ref()?.quantile(weights, quantile)?
                / base_pool.as_ref()?.quantile(weights, quantile)?,
        )
    };
    Some(Tail {
        pooled: estimate(&pooled, blocks, seed),
        worst_decile: estimate(
            &|weights: &[u32]| Some(worst_decile(arm, weights)? / worst_decile(base, weights)?),
            blocks,
            seed,
        ),
    })
}

fn estimate(ratio: &dyn Fn(&[u32]) -> Option<f64>, blocks: usize, seed: u64) -> Option<Estimate> {
    let seen = ratio(&vec![1; blocks]).filter(|ratio| !ratio.is_nan())?;
    let mut random = Random::new(seed, 0x7a11);
    let mut resampled: Vec<f64> = (0..RESAMPLINGS)
        .filter_map(|_| {
            let mut weights = vec![0; blocks];
            (0..blocks).for_each(|_| weights[random.below(blocks as u64) as usize] += 1);
            ratio(&weights).filter(|ratio| !ratio.is_nan())
        })
        .collect();
    resampled.sort_by(f64::total_cmp);
    let quantile = |share: f64| resampled.get((share * resampled.len() as f64) as usize).copied();
    Some(Estimate { ratio: seen, low: quantile(0.025)?, high: quantile(0.975)? })
}

/// Samples of all trials of an arm, largest first.
struct Pool {
    /// (value, block, count)
    samples: Vec<(u64, usize, f64)>,
    /// (block, samples, lost)
    trials: Vec<(usize, f64, f64)>,
}

impl Pool {
    /// `None` if a trial that succeeded has no samples.
    fn new(trials: &[Trial], blocks: usize) -> Option<Self> {
        let mut pool = Pool { samples: Vec::new(), trials: Vec::new() };
        for trial in trials.iter().filter(|trial| trial.block < blocks) {
            let Some(of) = trial.samples else {
                trial.figure.is_none().then_some(())?;
                continue;
            };
            pool.trials.push((trial.block, of.count + of.lost, of.lost));
            let counted = of.buckets.iter().map(|&(value, n)| (value, trial.block, n as f64));
            pool.samples.extend(counted);
        }
        pool.samples.sort_by_key(|sample| std::cmp::Reverse(sample.0));
        Some(pool)
    }

    /// Quantile with the blocks counted `weights` times; infinite if it lies among the lost.
    fn quantile(&self, weights: &[u32], quantile: f64) -> Option<f64> {
        let weighted = |of: fn(&(usize, f64, f64)) -> f64| -> f64 {
            self.trials.iter().map(|trial| f64::from(weights[trial.0]) * of(trial)).sum()
        };
        let beyond = (1.0 - quantile) * weighted(|trial| trial.1);
        let mut passed = weighted(|trial| trial.2);
        if passed > beyond {
            return Some(f64::INFINITY);
        }
        for &(value, block, count) in &self.samples {
            passed += f64::from(weights[block]) * count;
            if passed > beyond {
                return Some(value as f64);
            }
        }
        None
    }
}

/// Mean of the worst tenth of the trials' figures, at least one trial.
fn worst_decile(trials: &[Trial], weights: &[u32]) -> Option<f64> {
    let mut figures: Vec<f64> = trials
        .iter()
        .flat_map(|trial| {
            let times = weights.get(trial.block).copied().unwrap_or(0) as usize;
            std::iter::repeat_n(trial.figure.unwrap_or(f64::INFINITY), times)
        })
        .collect();
    figures.sort_by(|a, b| b.total_cmp(a));
    figures.truncate(figures.len().div_ceil(10));
    let count = figures.len();
    (count > 0).then(|| figures.iter().sum::<f64>() / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(p99_ns: u64, lost: f64) -> Samples {
        Samples { buckets: vec![(p99_ns, 20), (10, 980)], count: 1000.0, lost }
    }

    fn trials(of: &[Samples]) -> Vec<Trial<'_>> {
        let figure = |samples: &Samples| Some(samples.buckets[0].0 as f64);
        (of.iter().enumerate())
            .map(|(block, of)| Trial { block, samples: Some(of), figure: figure(of) })
            .collect()
    }

    #[test]
    fn one_bad_trial_in_ten_moves_both_figures_though_not_the_median() {
        let base = vec![samples(100, 0.0); 20];
        let mut arm = vec![samples(85, 0.0); 20];
        arm[3] = samples(1000, 0.0);
        arm[9] = samples(1000, 0.0);
        let found = tail(&trials(&arm), &trials(&base), 20, 0.999, 1).unwrap();
        let pooled = found.pooled.unwrap();
        assert!(pooled.ratio > 5.0 && pooled.high >= 1.0, "{pooled:?}");
        assert!(found.worst_decile.unwrap().ratio > 5.0);
        arm[3] = samples(85, 0.0);
        arm[9] = samples(85, 0.0);
        let found = tail(&trials(&arm), &trials(&base), 20, 0.999, 1).unwrap();
        assert_eq!(found.pooled.unwrap(), Estimate { ratio: 0.85, low: 0.85, high: 0.85 });
    }

    #[test]
    fn lost_datagrams_are_infinitely_late() {
        let base = vec![samples(100, 0.0); 8];
        let arm = vec![samples(50, 30.0); 8];
        let found = |quantile| {
            tail(&trials(&arm), &trials(&base), 8, quantile, 1).unwrap().pooled.unwrap().ratio
        };
        assert_eq!(found(0.99), f64::INFINITY);
        assert_eq!(found(0.96), 5.0);
    }

    #[test]
    fn failed_trial_is_the_worst_of_its_arm() {
        let good = samples(100, 0.0);
        let mut arm = trials(std::slice::from_ref(&good));
        arm.push(Trial { block: 1, samples: None, figure: None });
        assert_eq!(worst_decile(&arm, &[1, 1]), Some(f64::INFINITY));
        assert!(Pool::new(&arm, 2).is_some());
        arm.push(Trial { block: 2, samples: None, figure: Some(7.0) });
        assert!(Pool::new(&arm, 3).is_none(), "another program gives no samples");
    }

    #[test]
    fn infinity_survives_json() {
        let estimate = Estimate { ratio: 2.0, low: 1.0, high: f64::INFINITY };
        let text = serde_json::to_string(&estimate).unwrap();
        assert_eq!(serde_json::from_str::<Estimate>(&text).unwrap(), estimate);
    }
}
