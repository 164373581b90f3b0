//! Coverage of the 95 % interval, compared with bootstraps.

use wirepath_model::Random;
use wirepath_model::statistics::{LEVEL, STRICT_LEVEL, interval, median, p_value};

const SAMPLES: u32 = 3000;
const RESAMPLES: usize = 300;
const SIZES: [usize; 8] = [6, 7, 8, 10, 12, 15, 20, 30];

type Shape = fn(&mut Random) -> f64;

/// Log-ratios with median 0, as different as they come.
const SHAPES: [(&str, Shape); 3] = [
    ("normal", |random| random.normal()),
    // Student's t with 2 degrees of freedom: a block in a few is far off.
    ("heavy-tailed", |random| random.normal() / (-(1.0 - random.unit()).ln()).sqrt()),
    // Lognormal less its median: only one arm is ever hit.
    ("skewed", |random| random.normal().exp() - 1.0),
];

type Method = fn(&[f64], &mut Random) -> Option<(f64, f64)>;

fn coverage(method: Method, shape: Shape, size: usize, samples: u32) -> f64 {
    let mut random = Random::new(20261121, size as u64);
    let mut resampling = Random::new(20261121, 1000 + size as u64);
    let held = (0..samples)
        .filter(|_| {
            let values: Vec<f64> = (0..size).map(|_| shape(&mut random)).collect();
            let (low, high) = method(&values, &mut resampling).expect("enough values");
            low <= 0.0 && 0.0 <= high
        })
        .count();
    held as f64 / f64::from(samples)
}

fn resampled_medians(values: &[f64], random: &mut Random) -> Vec<f64> {
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<f64> =
                values.iter().map(|_| values[random.below(values.len() as u64) as usize]).collect();
            median(&drawn).expect("not empty")
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    medians
}

fn percentile(values: &[f64], random: &mut Random) -> Option<(f64, f64)> {
    let medians = resampled_medians(values, random);
    let quantile = |share: f64| medians[((medians.len() - 1) as f64 * share).round() as usize];
    Some((quantile(0.025), quantile(0.975)))
}

/// Bias-corrected and accelerated. Source: Efron 1987. The jackknife of a median is
/// degenerate, so its acceleration is 0 or nearly so.
fn bca(values: &[f64], random: &mut Random) -> Option<(f64, f64)> {
    let medians = resampled_medians(values, random);
    let centre = median(values)?;
    let below = medians.iter().filter(|m| **m < centre).count() as f64
        + medians.iter().filter(|m| **m == centre).count() as f64 / 2.0;
    let bias = normal_quantile(below / medians.len() as f64);
    let jackknife: Vec<f64> = (0..values.len())
        .filter_map(|left_out| {
            let mut rest = values.to_vec();
            rest.remove(left_out);
            median(&rest)
        })
        .collect();
    let mean = jackknife.iter().sum::<f64>() / jackknife.len() as f64;
    let moment = |power: i32| jackknife.iter().map(|j| (mean - j).powi(power)).sum::<f64>();
    let acceleration = moment(3) / (6.0 * moment(2).powf(1.5)).max(1e-300);
    let corrected = |z: f64| {
        let shifted = bias + (bias + z) / (1.0 - acceleration * (bias + z));
        let place = normal_share(shifted) * (medians.len() - 1) as f64;
        medians[(place.round() as usize).min(medians.len() - 1)]
    };
    Some((corrected(-1.96), corrected(1.96)))
}

fn normal_share(z: f64) -> f64 {
    // Logistic approximation, to 0.01 %: Bowling and others 2009.
    1.0 / (1.0 + (-(0.07056 * z.powi(3) + 1.5976 * z)).exp())
}

fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-6.0, 6.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_share(middle) < share { low = middle } else { high = middle }
    }
    low
}

fn ours(values: &[f64], _: &mut Random) -> Option<(f64, f64)> {
    interval(values, LEVEL)
}

#[test]
fn interval_has_its_nominal_coverage() {
    for (name, shape) in SHAPES {
        for size in SIZES {
            let held = coverage(ours, shape, size, 4 * SAMPLES);
            eprintln!("ours {name} n={size}: {held:.3}");
            assert!((0.935..0.965).contains(&held), "{name}, n = {size}: {held}");
        }
    }
}

#[test]
fn strict_interval_has_its_nominal_coverage() {
    let strict: Method = |values, _| interval(values, STRICT_LEVEL);
    for (name, shape) in SHAPES {
        for size in [8, 11, 15, 20] {
            let held = coverage(strict, shape, size, 4 * SAMPLES);
            eprintln!("strict {name} n={size}: {held:.4}");
            assert!((0.985..0.998).contains(&held), "{name}, n = {size}: {held}");
        }
    }
}

#[test]
fn bootstrap_of_a_median_falls_short_of_its_coverage() {
    // The reason for order statistics; see the table in `statistics`.
    for (method_name, method) in [("percentile", percentile as Method), ("bca", bca)] {
        let mut lowest = 1.0f64;
        for (name, shape) in SHAPES {
            for size in SIZES {
                let held = coverage(method, shape, size, SAMPLES / 3);
                eprintln!("{method_name} {name} n={size}: {held:.3}");
                lowest = lowest.min(held);
            }
        }
        assert!(lowest < 0.94, "{method_name} would do after all: {lowest}");
    }
}

#[test]
fn permutation_test_keeps_its_level() {
    for size in [6, 8, 12, 20, 60] {
        let mut random = Random::new(3, size);
        let samples = 4000;
        let hits = (0..samples)
            .filter(|_| {
                let values: Vec<f64> = (0..size).map(|_| random.normal()).collect();
                p_value(&values) < 0.05
            })
            .count();
        let rate = hits as f64 / f64::from(samples);
        // Three standard errors above 5 %.
        assert!(rate < 0.061, "n = {size}: {rate}");
        assert!(rate > 0.02, "n = {size}: {rate}, so the test would find nothing");
    }
}
