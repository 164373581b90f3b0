//! Change points of a series: E-divisive.
//!
//! The split of a series into two parts whose distributions differ most by the energy statistic, tested by
//! permutation; then the same within the parts, until no further split is found. Each test permutes the values within
//! the parts found so far and takes the largest statistic of all parts, so that every step has the level as a whole.
//!
//! Sources: Matteson and James 2014, "A nonparametric approach for multiple change point analysis of multivariate
//! data", Journal of the American Statistical Association 109, 334-345, with the last split of each part as the end of
//! the second sample; the statistic in the form of Székely and Rizzo 2013, Journal of Statistical Planning and Inference
//! 143, 1249-1272, with an exponent of 1. Monte Carlo p-values are (1 + exceeding) / (1 + permutations), which never
//! reject too often (Phipson and Smyth 2010).

use crate::Random;

/// Permutations are so many that this number of exceeding ones is just not significant.
const EXCEEDING_MAX: u32 = 20;

/// Split of a series into two parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// Values before the split.
    pub at: usize,
    /// Energy statistic: n m / (n + m) times the energy distance of the parts.
    pub statistic: f64,
}

/// A change of the distribution of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first value after the change.
    pub at: usize,
    /// Energy statistic of the split.
    pub statistic: f64,
    /// p-value of the permutation test at which it was found.
    pub p: f64,
}

fn distances(from: &[f64], value: f64) -> f64 {
    from.iter().map(|v| (v - value).abs()).sum::<f64>()
}

/// The split with the largest statistic; `None` if the series is shorter than two parts.
///
/// - `values`: finite, in order of time.
/// - `part_min`: fewest values of a part, at least 1.
pub fn best_split(values: &[f64], part_min: usize) -> Option<Split> {
    let count = values.len();
    if count < 2 * part_min.max(1) {
        return None;
    }
    let mut before = 0.0;
    let mut after: f64 =
        values.iter().enumerate().map(|(at, value)| distances(&values[at + 1..], *value)).sum();
    let mut between = 0.0;
    let mut best: Option<Split> = None;
    for at in 1..count {
        let moved = values[at - 1];
        let to_before = distances(&values[..at - 1], moved);
        let to_after = distances(&values[at..], moved);
        before += to_before;
        after -= to_after;
        between += to_after - to_before;
        if at < part_min || count - at < part_min {
            continue;
        }
        let (n, m) = (at as f64, (count - at) as f64);
        let energy = 2.0 * between / (n * m) - 2.0 * before / (n * n) - 2.0 * after / (m * m);
        let statistic = n * m / (n + m) * energy;
        if best.is_none_or(|best| statistic > best.statistic) {
            best = Some(Split { at, statistic });
        }
    }
    best
}

/// Change points of a series, ascending.
///
/// - `values`: finite, in order of time.
/// - `part_min`: fewest values between two changes.
/// - `level`: probability of any change in a series of exchangeable values, above 0 and at most 1.
/// - `seed`: of the permutations.
pub fn change_points(values: &[f64], part_min: usize, level: f64, seed: u64) -> Vec<ChangePoint> {
    let mut random = Random::new(seed, values.len() as u64);
    let mut bounds = vec![0, values.len()];
    let mut found: Vec<ChangePoint> = Vec::new();
    while let Some(split) = best_of(values, &bounds, part_min) {
        let Some(p) = p_value(values, &bounds, part_min, split.statistic, level, &mut random)
        else {
            break;
        };
        found.push(ChangePoint { at: split.at, statistic: split.statistic, p });
        bounds.push(split.at);
        bounds.sort_unstable();
    }
    found.sort_by_key(|change| change.at);
    found
}

/// The best split of all parts.
fn best_of(values: &[f64], bounds: &[usize], part_min: usize) -> Option<Split> {
    let splits = bounds.windows(2).filter_map(|part| {
        let split = best_split(&values[part[0]..part[1]], part_min)?;
        Some(Split { at: split.at + part[0], ..split })
    });
    splits.max_by(|a, b| a.statistic.total_cmp(&b.statistic))
}

/// p-value of a statistic under permutation within the parts; `None` if it is above the level.
fn p_value(
    values: &[f64],
    bounds: &[usize],
    part_min: usize,
    statistic: f64,
    level: f64,
    random: &mut Random,
) -> Option<f64> {
    let permutations = (f64::from(EXCEEDING_MAX) / level).ceil() as u64 - 1;
    // Sums in another order differ by rounding.
    let reached = statistic * (1.0 - 1e-9);
    let mut shuffled = values.to_vec();
    let mut exceeding = 0;
    for _ in 0..permutations {
        for part in bounds.windows(2) {
            shuffle(&mut shuffled[part[0]..part[1]], random);
        }
        let best = best_of(&shuffled, bounds, part_min);
        exceeding += u32::from(best.is_some_and(|best| best.statistic >= reached));
        if exceeding >= EXCEEDING_MAX {
            return None;
        }
    }
    Some(f64::from(exceeding + 1) / (permutations + 1) as f64)
}

/// Source: Fisher and Yates, in the form of Durstenfeld 1964.
fn shuffle(values: &mut [f64], random: &mut Random) {
    for last in (1..values.len()).rev() {
        values.swap(last, random.below(last as u64 + 1) as usize);
    }
}
