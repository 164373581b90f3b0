//! Random effects: each host has an effect of its own, drawn around a mean.

use super::student;
use crate::statistics::{LEVEL, median};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    pub log_ratio: f64,
    /// Standard error of it, above 0.
    pub error: f64,
}

/// Mean of the effects of all hosts, on the scale of logarithms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pooled {
    pub mean: f64,
    /// Its 95 % interval.
    pub interval: (f64, f64),
    /// Two-sided p-value of a mean of 0.
    pub p: f64,
    /// Standard deviation of the hosts' true effects.
    pub tau: f64,
    /// 95 % interval of the effect on the next host.
    pub prediction: (f64, f64),
}

/// Pools the effects of hosts; `None` below three of them.
///
/// The variance between hosts is that of DerSimonian and Laird, the error of the mean that of Hartung and
/// Knapp with a factor of at least 1, so that hosts which happen to agree do not narrow the interval.
///
/// Sources: DerSimonian and Laird 1986, Controlled Clinical Trials 7, 177-188; Knapp and Hartung 2003,
/// Statistics in Medicine 22, 2693-2710; for the prediction interval Higgins, Thompson and Spiegelhalter
/// 2009, Journal of the Royal Statistical Society A 172, 137-159.
pub fn random_effects(effects: &[Effect]) -> Option<Pooled> {
    let degrees = effects.len().checked_sub(1).filter(|degrees| *degrees >= 2)?;
    let tau_squared = between_hosts(effects);
    let weigh = |effect: &Effect| 1.0 / (effect.error.powi(2) + tau_squared);
    let (mean, total) = weighted_mean(effects, weigh);
    let q = weighted_squares(effects, weigh, mean) / degrees as f64;
    let error = (q.max(1.0) / total).sqrt();
    let around = |reach: f64| (mean - reach, mean + reach);
    let next = (tau_squared + error.powi(2)).sqrt();
    Some(Pooled {
        mean,
        interval: around(student::quantile(LEVEL, degrees) * error),
        p: student::p_value(mean / error, degrees),
        tau: tau_squared.sqrt(),
        prediction: around(student::quantile(LEVEL, degrees - 1) * next),
    })
}

fn weight(effect: &Effect) -> f64 {
    effect.error.powi(-2)
}

/// Variance of the hosts' true effects, by the method of moments.
fn between_hosts(effects: &[Effect]) -> f64 {
    let (mean, total) = weighted_mean(effects, weight);
    let squares: f64 = effects.iter().map(|effect| weight(effect).powi(2)).sum();
    let excess = weighted_squares(effects, weight, mean) - (effects.len() - 1) as f64;
    (excess / (total - squares / total)).max(0.0)
}

/// Weighted mean, and the sum of the weights.
fn weighted_mean(effects: &[Effect], weigh: impl Fn(&Effect) -> f64) -> (f64, f64) {
    let total: f64 = effects.iter().map(&weigh).sum();
    let sum: f64 = effects.iter().map(|effect| weigh(effect) * effect.log_ratio).sum();
    (sum / total, total)
}

fn weighted_squares(effects: &[Effect], weigh: impl Fn(&Effect) -> f64, mean: f64) -> f64 {
    effects.iter().map(|effect| weigh(effect) * (effect.log_ratio - mean).powi(2)).sum()
}

/// Standard error of a median over that of a mean, of normal values: the root of pi/2.
const OF_MEDIAN: f64 = 1.2533;

/// Effect of a group: the median of its hosts' effects, with the error that their own errors give it; `None` of an empty
/// group. By how much groups differ is the business of [`random_effects`].
pub(super) fn of_group(hosts: &[Effect]) -> Option<Effect> {
    let middle = median(&hosts.iter().map(|host| host.log_ratio).collect::<Vec<f64>>())?;
    let count = hosts.len() as f64;
    let variance = hosts.iter().map(|host| host.error.powi(2)).sum::<f64>() / count;
    // A median of two is their mean.
    let factor = if hosts.len() > 2 { OF_MEDIAN } else { 1.0 };
    Some(Effect { log_ratio: middle, error: factor * (variance / count).sqrt() })
}

/// Smallest standard error that is believed: figures of a coarse clock may not differ at all.
const ERROR_MIN: f64 = 1e-4;

/// Effect of a host by its paired log-ratios; `None` below six of them, or if too many are infinite
/// because their trials failed.
///
/// The effect is the median, its error that of a median of normal values with the same spread.
pub fn effect(log_ratios: &[f64]) -> Option<Effect> {
    /// Standard deviation of a normal distribution over its median absolute deviation.
    const SPREAD: f64 = 1.4826;
    let count = log_ratios.len();
    let middle = median(log_ratios).filter(|middle| middle.is_finite())?;
    let distances: Vec<f64> = log_ratios.iter().map(|value| (value - middle).abs()).collect();
    let spread = median(&distances).filter(|spread| spread.is_finite())? * SPREAD;
    let error = (OF_MEDIAN * spread / (count as f64).sqrt()).max(ERROR_MIN);
    (count >= crate::statistics::PAIRS_MIN).then_some(Effect { log_ratio: middle, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(values: &[(f64, f64)]) -> Vec<Effect> {
        values.iter().map(|&(log_ratio, error)| Effect { log_ratio, error }).collect()
    }

    fn is_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    /// statsmodels 0.14 `combine_effects(y, s**2, method_re="chi2")`: mean_effect_re, tau2,
    /// sd_eff_w_re_hksj (its scale is above 1), with scipy's t quantiles.
    #[test]
    fn hosts_that_differ_are_pooled_as_by_statsmodels() {
        let y = [-0.052, -0.031, -0.110, 0.020, -0.064, -0.048, -0.090, -0.015];
        let s = [0.010, 0.020, 0.015, 0.012, 0.030, 0.008, 0.025, 0.011];
        let pairs: Vec<(f64, f64)> = y.into_iter().zip(s).collect();
        let pooled = random_effects(&effects(&pairs)).unwrap();
        is_near(pooled.mean, -0.04645152535530414);
        is_near(pooled.tau.powi(2), 0.0012806747202967607);
        is_near(pooled.interval.0, -0.08129318919080011);
        is_near(pooled.interval.1, -0.011609861519808168);
        is_near(pooled.p, 0.0160944872265078);
        is_near(pooled.prediction.0, -0.14114990832481328);
        is_near(pooled.prediction.1, 0.04824685761420498);
    }

    /// The same with tau at 0, which statsmodels does not hold above 0: its fixed effect, whose factor of
    /// 0.13 is raised to 1.
    #[test]
    fn hosts_that_agree_too_well_do_not_narrow_the_interval() {
        let y = [0.010, -0.012, 0.004, 0.021, -0.003, 0.008];
        let s = [0.030, 0.025, 0.041, 0.036, 0.028, 0.033];
        let pairs: Vec<(f64, f64)> = y.into_iter().zip(s).collect();
        let pooled = random_effects(&effects(&pairs)).unwrap();
        assert_eq!(pooled.tau, 0.0);
        is_near(pooled.mean, 0.0022345959980142023);
        is_near(pooled.interval.0, -0.030225495609079295);
        is_near(pooled.interval.1, 0.0346946876051077);
        is_near(pooled.p, 0.8664830552818257);
    }

    #[test]
    fn two_hosts_are_not_pooled() {
        assert_eq!(random_effects(&effects(&[(0.1, 0.1), (0.2, 0.1)])), None);
    }

    #[test]
    fn host_without_figures_has_no_effect() {
        assert_eq!(effect(&[0.1; 5]), None);
        let failed = [0.1, 0.1, f64::INFINITY, f64::INFINITY, f64::INFINITY, f64::INFINITY];
        assert_eq!(effect(&failed), None);
        let few_failed = [0.1, 0.2, 0.3, 0.2, 0.1, f64::INFINITY];
        assert!(effect(&few_failed).is_some());
        assert_eq!(effect(&[0.0; 8]).unwrap().error, ERROR_MIN);
    }
}
