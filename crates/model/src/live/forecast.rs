//! Length of the periods and time needed, from a baseline without any switch.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{LiveFigure, LivePlan, LiveScale, pairs_min};
use crate::statistics::{PAIRS_MIN, finite, median};

/// Shortest period: the act and the wash-out of a shorter one would be most of it.
pub const PERIOD_NS_MIN: u64 = 2_000_000_000;

/// Period unless another one needs clearly less time.
pub const PERIOD_NS: u64 = 5_000_000_000;

/// Longest period, unless the wash-out needs a longer one. Correlated noise never asks for longer ones: the coin takes care
/// of it.
pub const PERIOD_NS_MAX: u64 = 10_000_000_000;

/// Periods that are tried.
const PERIODS_S: [u64; 7] = [2, 3, 4, 5, 6, 8, 10];

/// Shortest period in wash-outs.
const PERIOD_WASHOUTS: u64 = 5;

/// Fewest requests of a period that has a p99.
const P99_REQUESTS_MIN: f64 = 50.0;

/// Time that the default period may need over the best one.
const PREFERENCE: f64 = 1.1;

/// Pairs that a difference of one spread needs: 3.5 squared. Source: simulated runs of this judge, within a factor of 1.5.
const PAIRS_FOR_ONE_SPREAD: f64 = 3.5 * 3.5;

/// Standard deviation of a normal distribution over its median absolute deviation.
const SPREAD: f64 = 1.4826;

/// Spread of pairs that were laid over a baseline, for one length of periods.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaceboPoint {
    /// Length of the periods, wash-out included.
    pub period_ns: u64,
    /// By figure: 1.48 times the median size of the logarithm of neighbouring periods' ratio. `None` of counts, and with too few
    /// periods.
    pub spread: Vec<Option<f64>>,
}

/// Placebo curve: pairs laid over a baseline that was read in equal slices.
///
/// - `value`: the figure over a range of slices; `None` without one.
/// - Returns one point for each permitted period that the baseline has room for.
pub fn placebo(
    slice_ns: u64,
    slice_count: usize,
    figures: &[LiveFigure],
    washout_ns: u64,
    value: &dyn Fn(usize, Range<usize>) -> Option<f64>,
) -> Vec<PlaceboPoint> {
    let slice_ns = slice_ns.max(1);
    let washout = washout_ns.div_ceil(slice_ns) as usize;
    periods_ns(washout_ns)
        .into_iter()
        .filter_map(|period_ns| {
            let length = period_ns.div_ceil(slice_ns) as usize;
            if length <= washout || slice_count / length < 2 {
                return None;
            }
            let starts = (0..slice_count / length).map(|period| period * length);
            let ranges: Vec<_> = starts.map(|start| start + washout..start + length).collect();
            let spread = figures.iter().enumerate().map(|(index, figure)| {
                let is_ratio = figure.scale == LiveScale::Ratio;
                is_ratio.then(|| spread(&ranges, |range| value(index, range))).flatten()
            });
            Some(PlaceboPoint { period_ns: length as u64 * slice_ns, spread: spread.collect() })
        })
        .collect()
}

/// Permitted periods, ascending.
fn periods_ns(washout_ns: u64) -> Vec<u64> {
    let least = washout_ns.saturating_mul(PERIOD_WASHOUTS);
    let permitted: Vec<u64> =
        PERIODS_S.iter().map(|s| s * 1_000_000_000).filter(|period| *period >= least).collect();
    if permitted.is_empty() { vec![least] } else { permitted }
}

/// Median size, not standard deviation: bursts triple the latter, and not the time needed.
fn spread(ranges: &[Range<usize>], value: impl Fn(Range<usize>) -> Option<f64>) -> Option<f64> {
    let logs: Vec<Option<f64>> =
        ranges.iter().map(|range| finite(value(range.clone())?.ln())).collect();
    let sizes: Vec<f64> =
        logs.windows(2).filter_map(|pair| Some((pair[1]? - pair[0]?).abs())).collect();
    if sizes.len() < PAIRS_MIN {
        return None;
    }
    Some(SPREAD * median(&sizes)?)
}

/// Period and time of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LiveForecast {
    /// Length of a period, wash-out included.
    pub period_ns: u64,
    /// Pairs after which the primary figure is probably decided.
    pub pairs: u32,
    /// Time that these need, and the third of the time that is kept for longer periods.
    pub time_ns: u64,
    /// By figure: the same time; `None` if the baseline cannot tell.
    pub figures: Vec<Option<u64>>,
}

/// Reason not to start a run.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum LiveRefusal {
    /// The baseline gave too few values of the primary figure.
    #[error(
        "the baseline has too few values of {figure} to forecast the time; lengthen it to {} s, or name another figure first",
        seconds(.baseline_ns)
    )]
    Baseline {
        /// The primary figure.
        figure: String,
        /// Length that would do.
        baseline_ns: u64,
    },
    /// Too few requests for a p99.
    #[error(
        "{requests_per_s:.1} requests a second are too few for {figure}, which needs {needed:.0} in periods of {} s; \
         leave {figure} out, or judge the p50",
        seconds(.period_ns)
    )]
    Requests {
        /// Figure that needs them.
        figure: String,
        /// Requests a second of the baseline.
        requests_per_s: f64,
        /// Requests a second that would do.
        needed: f64,
        /// Longest permitted period.
        period_ns: u64,
    },
    /// The given time cannot decide the primary figure.
    #[error("{}", time_sentence(.figure, *.resolve, *.given_ns, *.needed_ns, *.finds))]
    Time {
        /// The primary figure.
        figure: String,
        /// Resolution asked for, a ratio above 1.
        resolve: f64,
        /// Time given.
        given_ns: u64,
        /// Time that would do.
        needed_ns: u64,
        /// Ratio above 1 that the given time finds; `None` if it is shorter than the fewest pairs.
        finds: Option<f64>,
    },
}

fn seconds(time_ns: &u64) -> u64 {
    time_ns.div_ceil(1_000_000_000)
}

fn time_sentence(
    figure: &str,
    resolve: f64,
    given_ns: u64,
    needed_ns: u64,
    finds: Option<f64>,
) -> String {
    let (given, needed) = (seconds(&given_ns), seconds(&needed_ns));
    let percent = (resolve - 1.0) * 100.0;
    let remedy = match finds {
        Some(ratio) => {
            format!("give --for {needed}s, or --resolve {:.0}%", ((ratio - 1.0) * 100.0).ceil())
        }
        None => format!("give --for {needed}s"),
    };
    format!("{percent:.1} % of {figure} needs {needed} s, and {given} s are given; {remedy}")
}

/// Period and time needed for the resolution.
///
/// The time needed is that of the fewest pairs, or `(3.5 s / delta)^2` pairs if that is more, for a spread `s` and the logarithm
/// `delta` of the resolution.
///
/// Errors: the primary figure has no spread, or cannot be decided in the given time; a p99 has too few requests.
pub fn forecast(
    plan: &LivePlan,
    points: &[PlaceboPoint],
    requests_per_s: f64,
) -> Result<LiveForecast, LiveRefusal> {
    let longest_ns = periods_ns(plan.washout_ns).into_iter().max().unwrap_or(PERIOD_NS_MAX);
    let tail = plan.figures.iter().find(|figure| figure.name.contains("p99"));
    let least_ns = tail.map_or(0, |_| tail_period_ns(plan, requests_per_s));
    if let Some(tail) = tail.filter(|_| longest_ns < least_ns) {
        let counted_s = longest_ns.saturating_sub(plan.washout_ns) as f64 / 1e9;
        return Err(LiveRefusal::Requests {
            figure: tail.name.clone(),
            requests_per_s,
            needed: P99_REQUESTS_MIN / counted_s,
            period_ns: longest_ns,
        });
    }
    let usable: Vec<(&PlaceboPoint, f64)> = points
        .iter()
        .filter(|point| point.period_ns >= least_ns)
        .filter_map(|point| {
            let spread = point.spread.first().copied().flatten()?;
            Some((point, spread * spread * pair_ns(plan, point.period_ns)))
        })
        .collect();
    let is_ratio = plan.figures.first().is_some_and(|figure| figure.scale == LiveScale::Ratio);
    let least = usable.iter().map(|(_, cost)| *cost).reduce(f64::min);
    let preferred = usable
        .iter()
        .filter(|(_, cost)| least.is_some_and(|least| *cost <= least * PREFERENCE))
        .min_by_key(|(point, _)| point.period_ns.abs_diff(PERIOD_NS));
    let Some((point, _)) = preferred else {
        if is_ratio {
            let periods = PAIRS_MIN as u64 + 1;
            let figure = plan.figures.first().map(|figure| figure.name.clone()).unwrap_or_default();
            return Err(LiveRefusal::Baseline { figure, baseline_ns: periods * longest_ns });
        }
        // Counts are judged as they come.
        let period_ns = periods_ns(plan.washout_ns)
            .into_iter()
            .filter(|period_ns| *period_ns >= least_ns)
            .min_by_key(|period_ns| period_ns.abs_diff(PERIOD_NS))
            .unwrap_or(PERIOD_NS);
        let pairs = pairs_min(plan.figures.len());
        return granted(plan, period_ns, pairs, vec![None; plan.figures.len()], None);
    };
    let pairs_by_figure: Vec<Option<u32>> =
        point.spread.iter().map(|spread| Some(pairs_needed(plan, (*spread)?))).collect();
    let times = pairs_by_figure
        .iter()
        .map(|pairs| Some(time_ns(plan, point.period_ns, (*pairs)?)))
        .collect();
    let pairs = pairs_by_figure.first().copied().flatten().unwrap_or(u32::MAX);
    granted(plan, point.period_ns, pairs, times, point.spread.first().copied().flatten())
}

/// Shortest period with enough requests for a p99.
fn tail_period_ns(plan: &LivePlan, requests_per_s: f64) -> u64 {
    let counted_ns = (P99_REQUESTS_MIN / requests_per_s.max(0.0) * 1e9).ceil() as u64;
    plan.washout_ns.saturating_add(counted_ns)
}

fn pair_ns(plan: &LivePlan, period_ns: u64) -> f64 {
    2.0 * period_ns.saturating_add(plan.act_ns) as f64
}

/// Share of the time in which short periods run.
fn short_share(plan: &LivePlan) -> f64 {
    if plan.confirm { 2.0 / 3.0 } else { 1.0 }
}

/// Pairs for one spread, more of them for more figures in the ratio of the fewest pairs.
fn pairs_for_one_spread(plan: &LivePlan) -> f64 {
    let least = pairs_min(plan.figures.len());
    PAIRS_FOR_ONE_SPREAD * f64::from(least) / f64::from(pairs_min(1))
}

fn pairs_needed(plan: &LivePlan, spread: f64) -> u32 {
    let pairs = pairs_for_one_spread(plan) * (spread / plan.resolve.ln()).powi(2);
    (pairs.ceil() as u32).max(pairs_min(plan.figures.len()))
}

fn time_ns(plan: &LivePlan, period_ns: u64, pairs: u32) -> u64 {
    (f64::from(pairs) * pair_ns(plan, period_ns) / short_share(plan)).ceil() as u64
}

fn granted(
    plan: &LivePlan,
    period_ns: u64,
    pairs: u32,
    figures: Vec<Option<u64>>,
    spread: Option<f64>,
) -> Result<LiveForecast, LiveRefusal> {
    let needed_ns = time_ns(plan, period_ns, pairs);
    if needed_ns <= plan.time_ns {
        return Ok(LiveForecast { period_ns, pairs, time_ns: needed_ns, figures });
    }
    let fitting = plan.time_ns as f64 * short_share(plan) / pair_ns(plan, period_ns);
    let finds = spread
        .filter(|_| fitting >= f64::from(pairs_min(plan.figures.len())))
        .map(|spread| (spread * (pairs_for_one_spread(plan) / fitting).sqrt()).exp());
    Err(LiveRefusal::Time {
        figure: plan.figures.first().map(|figure| figure.name.clone()).unwrap_or_default(),
        resolve: plan.resolve,
        given_ns: plan.time_ns,
        needed_ns,
        finds,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{LiveFigure, WASHOUT_NS};
    use crate::{Better, Random, statistics};

    const SECOND_NS: u64 = 1_000_000_000;

    fn plan(names: &[&str], minutes: u64) -> LivePlan {
        let figures = names.iter().map(|name| LiveFigure {
            name: (*name).to_owned(),
            unit: "ms".into(),
            better: Better::Lower,
            scale: if *name == "errors" { LiveScale::Count } else { LiveScale::Ratio },
        });
        LivePlan {
            figures: figures.collect(),
            resolve: 1.05,
            time_ns: minutes * 60 * SECOND_NS,
            seed: 1,
            washout_ns: WASHOUT_NS,
            act_ns: 0,
            confirm: false,
            rules: Vec::new(),
        }
    }

    /// Three minutes in slices of half a second, whose logarithms have independent noise.
    fn white_curve(plan: &LivePlan, noise: f64) -> Vec<PlaceboPoint> {
        let mut random = Random::new(3, 0);
        let slices: Vec<f64> = (0..360).map(|_| (noise * random.normal()).exp()).collect();
        placebo(SECOND_NS / 2, 360, &plan.figures, plan.washout_ns, &|_, range| {
            statistics::mean(&slices[range])
        })
    }

    fn point(period_s: u64, spread: f64) -> PlaceboPoint {
        PlaceboPoint { period_ns: period_s * SECOND_NS, spread: vec![Some(spread)] }
    }

    #[test]
    fn curve_has_the_spread_of_the_noise() {
        let plan = plan(&["p50", "errors"], 60);
        let curve = white_curve(&plan, 0.1);
        let periods: Vec<u64> = curve.iter().map(|point| point.period_ns / SECOND_NS).collect();
        assert_eq!(periods, [3, 4, 5, 6, 8, 10]);
        for point in curve {
            let slices = (point.period_ns / SECOND_NS * 2 - 1) as f64;
            let expected = 0.1 * (2.0 / slices).sqrt();
            let spread = point.spread[0].expect("a spread");
            assert!((0.5..2.0).contains(&(spread / expected)), "{spread} {expected}");
            assert_eq!(point.spread[1], None);
        }
    }

    #[test]
    fn five_seconds_are_preferred_unless_another_period_is_clearly_better() {
        let plan = plan(&["p50"], 600);
        // Equal costs: the spread falls with the root of the length.
        let even: Vec<_> = [3, 4, 5, 6, 8, 10].map(|s| point(s, 0.3 / (s as f64).sqrt())).into();
        assert_eq!(forecast(&plan, &even, 100.0).map(|f| f.period_ns), Ok(5 * SECOND_NS));
        // Correlated noise does not get smaller in longer periods.
        let flat: Vec<_> = [3, 4, 5, 6, 8, 10].map(|s| point(s, 0.1)).into();
        assert_eq!(forecast(&plan, &flat, 100.0).map(|f| f.period_ns), Ok(3 * SECOND_NS));
    }

    #[test]
    fn time_is_that_of_the_fewest_pairs_or_of_the_spread() {
        let mut plan = plan(&["p50"], 60);
        let quiet = forecast(&plan, &[point(5, 0.01)], 100.0).expect("fits");
        assert_eq!((quiet.pairs, quiet.time_ns), (18, 180 * SECOND_NS));
        assert_eq!(quiet.figures, [Some(180 * SECOND_NS)]);
        // (3.5 * 0.15 / ln 1.05)^2 pairs.
        assert_eq!(forecast(&plan, &[point(5, 0.15)], 100.0).map(|f| f.pairs), Ok(116));
        plan.act_ns = SECOND_NS;
        plan.confirm = true;
        let slow = forecast(&plan, &[point(5, 0.01)], 100.0).expect("fits");
        assert_eq!(slow.time_ns, 18 * 12 * SECOND_NS * 3 / 2);
    }

    #[test]
    fn time_that_cannot_decide_is_refused_with_the_time_and_the_difference_that_could() {
        let plan = plan(&["p50"], 10);
        let refusal = forecast(&plan, &[point(5, 0.15)], 100.0).expect_err("too short");
        assert_eq!(
            refusal.to_string(),
            "5.0 % of p50 needs 1160 s, and 600 s are given; give --for 1160s, or --resolve 8%"
        );
        let short = LivePlan { time_ns: 100 * SECOND_NS, ..plan };
        let refusal = forecast(&short, &[point(5, 0.01)], 100.0).expect_err("too short");
        assert_eq!(
            refusal.to_string(),
            "5.0 % of p50 needs 180 s, and 100 s are given; give --for 180s"
        );
    }

    #[test]
    fn tail_needs_fifty_requests_a_period() {
        let plan = plan(&["p50", "p99"], 600);
        let flat: Vec<_> = [3, 5, 10].map(|s| point(s, 0.1)).into();
        assert_eq!(forecast(&plan, &flat, 100.0).map(|f| f.period_ns), Ok(3 * SECOND_NS));
        // 9.5 s of 6 requests have 57; 4.5 s have 27.
        assert_eq!(forecast(&plan, &flat, 6.0).map(|f| f.period_ns), Ok(10 * SECOND_NS));
        let refusal = forecast(&plan, &flat, 3.0).expect_err("too few requests");
        assert!(refusal.to_string().contains("leave p99 out"), "{refusal}");
    }

    #[test]
    fn long_washout_has_long_periods_and_a_long_baseline() {
        let mut plan = plan(&["p50"], 600);
        plan.washout_ns = 8 * SECOND_NS;
        let refusal = forecast(&plan, &white_curve(&plan, 0.1), 100.0).expect_err("short baseline");
        assert!(refusal.to_string().contains("lengthen it to 280 s"), "{refusal}");
        assert_eq!(forecast(&plan, &[point(40, 0.01)], 100.0).map(|f| f.pairs), Ok(18));
    }

    #[test]
    fn counts_are_judged_without_a_curve() {
        let plan = plan(&["errors"], 60);
        let found = forecast(&plan, &white_curve(&plan, 0.1), 100.0).expect("fits");
        assert_eq!((found.period_ns, found.figures), (5 * SECOND_NS, vec![None]));
    }
}
