//! Checks of what the coin does not see: effects that outlast a period.
//!
//! A setting that warms a cache for ten seconds moves the off-period after it. Each check asks a question whose answer has a
//! random sign without such an effect, so that signed ranks are exact. An effect that lasts more than four periods is invisible
//! in short periods whatever is asked of them: in simulated runs with a decay of 60 s both checks fired in 3 to 4 %, and the
//! second scale is for those.

use super::outcome::SecondScale;
use super::pair::Pair;
use super::{LiveFigure, LiveScale};
use crate::Better;
use crate::statistics::{
    LEVEL, STRICT_LEVEL, STRICT_PAIRS_MIN, finite, median, p_value, p_value_above,
};

/// Fewest long pairs that can confirm: five on one side have a probability of 1 in 32.
pub(super) const LONG_PAIRS_MIN: u32 = 5;

/// Long pairs that are run if the time allows: half an hour. Seven on one side can contradict at 1 %; of effects that decay in
/// 10 s, 8 pairs contradicted 61 % in simulated runs.
pub(super) const LONG_PAIRS_MAX: u32 = 12;

/// p-value of equal differences in both halves of the periods; `None` with too few pairs.
pub(super) fn half_p(pairs: &[Pair], index: usize, figure: &LiveFigure) -> Option<f64> {
    let shifts: Vec<f64> = pairs
        .iter()
        .filter_map(|pair| pair.half_differences(index, figure))
        .filter_map(|[first, second]| finite(first - second))
        .collect();
    (shifts.len() >= STRICT_PAIRS_MIN).then(|| p_value(&shifts))
}

/// p-value of equal differences of the pairs whose first period follows its own arm and of those whose first period follows
/// the other one; `None` with too few pairs.
///
/// A pair's first period follows the other arm if the pair before began with the same arm. That is a coin of its own: times
/// it, the distance of the difference from the median has a random sign.
pub(super) fn predecessor_p(pairs: &[Pair], index: usize, figure: &LiveFigure) -> Option<f64> {
    let signed: Vec<(f64, f64)> = pairs
        .windows(2)
        .filter(|pair| !pair[1].has_trip())
        .filter_map(|pair| {
            let difference = finite(pair[1].difference(index, figure)?)?;
            Some((difference, if pair[0].first == pair[1].first { 1.0 } else { -1.0 }))
        })
        .collect();
    let center = median(&signed.iter().map(|(difference, _)| *difference).collect::<Vec<_>>())?;
    let shifts: Vec<f64> =
        signed.iter().map(|(difference, sign)| (difference - center) * sign).collect();
    (shifts.len() >= STRICT_PAIRS_MIN).then(|| p_value(&shifts))
}

/// True if a p-value, corrected for the number of figures, shows an effect.
pub(super) fn is_fired(p: Option<f64>) -> bool {
    p.is_some_and(|p| p < 1.0 - STRICT_LEVEL)
}

/// Share of the short periods' gain that long periods must show to confirm it.
const CONFIRMED_SHARE: f64 = 0.5;

/// Long periods against a "better".
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LongAnswer {
    pub(super) pairs: u32,
    pub(super) ratio: Option<f64>,
    pub(super) answer: SecondScale,
}

/// - `short`: differences of the short pairs, which were better.
pub(super) fn long_answer(
    short: &[f64],
    long: &[Pair],
    index: usize,
    figure: &LiveFigure,
) -> LongAnswer {
    let sign = match figure.better {
        Better::Lower => -1.0,
        Better::Higher => 1.0,
    };
    let differences: Vec<f64> =
        long.iter().filter_map(|pair| pair.difference(index, figure)).collect();
    let gains: Vec<f64> = differences.iter().map(|difference| sign * difference).collect();
    let promised = sign * median(short).unwrap_or_default();
    let shortfalls: Vec<f64> =
        gains.iter().map(|gain| promised - gain).filter(|value| !value.is_nan()).collect();
    let answer = if p_value_above(&shortfalls) < 1.0 - STRICT_LEVEL {
        SecondScale::Contradicted
    } else if p_value_above(&gains) < 1.0 - LEVEL
        && median(&gains).is_some_and(|gain| gain >= CONFIRMED_SHARE * promised)
    {
        SecondScale::Confirmed
    } else {
        SecondScale::NotShown
    };
    let middle = median(&differences).filter(|_| figure.scale == LiveScale::Ratio);
    LongAnswer {
        pairs: differences.len() as u32,
        ratio: middle.map(f64::exp).and_then(finite),
        answer,
    }
}
