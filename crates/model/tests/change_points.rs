//! Change points against another implementation, and in simulated series.
//!
//! `cargo test -p wirepath-model --test change_points -- --nocapture` prints the shares.

use serde_json::Value;
use wirepath_model::Random;
use wirepath_model::change_points::{best_split, change_points};

/// MongoDB's signal-processing-algorithms; `goldens/e_divisive.py` wrote the file.
#[test]
fn positions_and_statistics_are_those_of_another_implementation() {
    let golden: Value =
        serde_json::from_str(include_str!("goldens/e_divisive.json")).expect("a document");
    let series = golden["series"].as_array().expect("series");
    assert_eq!(series.len(), 6);
    for one in series {
        let values: Vec<f64> =
            one["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        let split = best_split(&values, 1).unwrap();
        assert_eq!(Some(split.at as u64), one["at"].as_u64(), "{}", one["name"]);
        let statistic = one["statistic"].as_f64().unwrap();
        assert!((split.statistic - statistic).abs() < 1e-9 * statistic, "{}", one["name"]);
        let found: Vec<usize> =
            change_points(&values, 1, 0.01, 1).iter().map(|change| change.at).collect();
        let expected: Vec<usize> = one["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_u64().unwrap() as usize)
            .collect();
        assert_eq!(found, expected, "{}", one["name"]);
    }
}

#[test]
fn short_and_constant_series_have_no_change() {
    assert!(best_split(&[], 5).is_none() && best_split(&[1.0; 9], 5).is_none());
    assert!(change_points(&[], 5, 0.05, 1).is_empty());
    assert!(change_points(&[7.0; 40], 5, 0.05, 1).is_empty());
}

/// Logarithms of a figure with so much noise; heavy tails by Student's t with 3 degrees of freedom.
fn noise(random: &mut Random, sd: f64, has_heavy_tails: bool) -> f64 {
    let normal = random.normal();
    if !has_heavy_tails {
        return sd * normal;
    }
    let squares: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
    sd * normal / (squares / 3.0).sqrt()
}

#[test]
fn pages_of_series_without_a_change_seldom_show_one() {
    for (series, pages) in [(1u32, 200), (12, 60)] {
        for has_heavy_tails in [false, true] {
            let count = (0..pages)
                .filter(|page| {
                    (0..u64::from(series)).any(|at| {
                        let mut random = Random::new(*page, at);
                        let sessions = 10 + random.below(31) as usize;
                        let values: Vec<f64> = (0..sessions)
                            .map(|_| noise(&mut random, 0.03, has_heavy_tails))
                            .collect();
                        !change_points(&values, 5, 0.05 / f64::from(series), at).is_empty()
                    })
                })
                .count();
            eprintln!(
                "{series} series, heavy tails {has_heavy_tails}: {count} of {pages} pages with a change"
            );
            // 5 %, and 2.6 standard errors.
            let bound = 0.05 + 2.6 * (0.05f64 * 0.95 / pages as f64).sqrt();
            assert!(count as f64 <= bound * pages as f64, "{count} of {pages}");
        }
    }
}

#[test]
fn step_of_5_percent_is_found_where_it_is() {
    const SERIES: u64 = 20;
    for (sessions, step_at) in [(30usize, 15usize), (30, 24), (60, 30)] {
        let count = (0..SERIES)
            .filter(|seed| {
                let mut random = Random::new(*seed, 9);
                let values: Vec<f64> = (0..sessions)
                    .map(|at| if at >= step_at { 1.05f64.ln() } else { 0.0 })
                    .map(|level| level + noise(&mut random, 0.01, false))
                    .collect();
                let found = change_points(&values, 5, 0.05 / 12.0, *seed);
                found.len() == 1 && found[0].at.abs_diff(step_at) <= 1
            })
            .count();
        eprintln!("{sessions} sessions, step after {step_at}: found in {count} of {SERIES}");
        assert!(count as u64 >= SERIES - 1, "{count}");
    }
}
