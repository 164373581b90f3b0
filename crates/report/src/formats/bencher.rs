//! Bencher Metric Format (BMF), for <https://bencher.dev>.

use std::collections::BTreeMap;

use serde::Serialize;

use super::one_line;
use crate::page::{Figures, Page, PageMetric};

/// Longest name of a measure, characters.
const MEASURE_CHARS_MAX: usize = 64;
/// Longest name of a benchmark, characters.
const BENCHMARK_CHARS_MAX: usize = 1024;

#[derive(Serialize)]
struct Measure {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

/// Returns a JSON document: each arm is a benchmark, with its median and, with the interval, its ratio
/// to the baseline of each judged metric.
///
/// Source: `https://bencher.dev/bmf.json`, and the limits of names in Bencher's documentation of BMF.
pub fn to_bencher(page: &Page) -> String {
    let mut benchmarks: BTreeMap<String, BTreeMap<String, Measure>> = BTreeMap::new();
    for metric in &page.metrics {
        for row in &metric.rows {
            let name = cut(&format!("{}: {}", page.subject, row.arm), BENCHMARK_CHARS_MAX);
            let measures = measures(metric, &row.figures);
            if measures.is_empty() {
                continue;
            }
            let known = benchmarks.entry(name).or_default();
            for (name, measure) in measures {
                known.insert(free(known, &name), measure);
            }
        }
    }
    let text =
        serde_json::to_string_pretty(&benchmarks).expect("only string keys, and finite numbers");
    text + "\n"
}

fn measures(metric: &PageMetric, figures: &Figures) -> Vec<(String, Measure)> {
    let median = figures.median.map(|value| {
        (metric.name.clone(), Measure { value, lower_value: None, upper_value: None })
    });
    let ratio = figures.ratio.map(|value| {
        let measure = Measure { value, lower_value: figures.low, upper_value: figures.high };
        (format!("{}_ratio", metric.name), measure)
    });
    [median, ratio].into_iter().flatten().collect()
}

/// The name of a measure within its limit; with a number at its end if the name that was cut is taken.
fn free(known: &BTreeMap<String, Measure>, name: &str) -> String {
    let numbered = (2..).map(|number| {
        let end = format!("~{number}");
        cut(name, MEASURE_CHARS_MAX - end.len()) + &end
    });
    let mut names = std::iter::once(cut(name, MEASURE_CHARS_MAX)).chain(numbered);
    names.find(|name| !known.contains_key(name)).expect("there is always a next number")
}

fn cut(name: &str, chars_max: usize) -> String {
    one_line(name).chars().take(chars_max).collect()
}
