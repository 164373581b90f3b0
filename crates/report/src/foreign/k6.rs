//! k6's summary: `--summary-export`, and the data of `handleSummary` as JSON.
//!
//! The first has the figures of a metric side by side and no type; the second has them in `values`, beside `type` and
//! `contains`.
//!
//! Source: Grafana k6's documentation of the end-of-test summary, and k6 1.x `internal/js/summary.js`.

use std::collections::BTreeMap;

use model::{Better, Warning};
use serde::Deserialize;
use serde_json::Value;

use super::{
    ENTRIES_MAX, ForeignArm, ForeignError, ForeignMetric, ForeignRun, at_most, name, value,
};

const TOOL: &str = "k6";
const WHY: &str = "one run of k6 has nothing to be compared with";
const NS_PER_MS: f64 = 1e6;
/// Judged figures, most important first, of those that a run has.
const JUDGED: [&str; 4] = [
    "http_req_duration_ns_p95",
    "http_req_duration_ns_p50",
    "iteration_duration_ns_p95",
    "http_reqs_per_s",
];

#[derive(Deserialize)]
struct Summary {
    metrics: BTreeMap<String, Metric>,
    state: Option<State>,
}

#[derive(Deserialize)]
struct State {
    #[serde(rename = "testRunDurationMs")]
    duration_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Metric {
    contains: Option<String>,
    values: Option<BTreeMap<String, f64>>,
    thresholds: Option<BTreeMap<String, Value>>,
    /// Of `--summary-export`.
    #[serde(flatten)]
    figures: BTreeMap<String, Value>,
}

impl Metric {
    /// Figures by k6's names of them.
    fn figures(&self) -> BTreeMap<&str, f64> {
        match &self.values {
            Some(values) => values.iter().map(|(name, value)| (name.as_str(), *value)).collect(),
            None => {
                let numbers = self.figures.iter();
                numbers.filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?))).collect()
            }
        }
    }

    /// True of a trend of times. Without a type, k6's own trends are told by their names.
    fn is_time(&self, name: &str) -> bool {
        match self.contains.as_deref() {
            Some(contains) => contains == "time",
            None => {
                const OWN: [&str; 4] = ["http_req_", "ws_", "grpc_", "browser_"];
                name.ends_with("_duration") || OWN.iter().any(|own| name.starts_with(own))
            }
        }
    }

    /// Thresholds of the script that were crossed. In `--summary-export` true stands for crossed; in `handleSummary` there
    /// is `ok`.
    fn crossed(&self) -> impl Iterator<Item = &String> {
        let thresholds = self.thresholds.iter().flatten();
        let crossed = thresholds.filter(|(_, state)| match state {
            Value::Bool(is_crossed) => *is_crossed,
            state => state.get("ok") == Some(&Value::Bool(false)),
        });
        crossed.map(|(condition, _)| condition)
    }
}

pub(super) fn read(text: &str) -> Result<ForeignRun, ForeignError> {
    let summary: Summary =
        serde_json::from_str(text).map_err(|source| ForeignError::Shape { tool: TOOL, source })?;
    at_most(TOOL, "metrics", summary.metrics.len(), ENTRIES_MAX)?;
    let mut metrics = Vec::new();
    let mut warnings = Vec::new();
    for (metric, of) in &summary.metrics {
        // `{name:value}`: a part of another metric, by tag.
        if !metric.contains('{') {
            figures(&mut metrics, metric, of)?;
        }
        warnings.extend(of.crossed().map(|condition| Warning {
            what: format!("the threshold {} of {} was crossed", name(condition), name(metric)),
            advice: "the script sets it".into(),
        }));
    }
    if metrics.is_empty() {
        return Err(ForeignError::Empty { tool: TOOL, what: "a figure that is known" });
    }
    let mut judged: Vec<String> = JUDGED
        .into_iter()
        .filter(|name| metrics.iter().any(|metric: &ForeignMetric| metric.name == *name))
        .map(str::to_owned)
        .collect();
    if judged.is_empty() {
        judged.push(metrics[0].name.clone());
    }
    let wall_ms = summary.state.and_then(|state| state.duration_ms).unwrap_or(0.0);
    let arms = vec![ForeignArm { name: TOOL.into(), metrics, failures: Vec::new() }];
    Ok(ForeignRun {
        tool: TOOL,
        version: None,
        started: None,
        wall_ms: wall_ms.clamp(0.0, 1e15) as u64,
        judged,
        arms,
        warnings,
        why: WHY,
    })
}

/// Adds the figures of a metric whose direction is known: trends, rates per second of k6's own counters, and shares.
fn figures(out: &mut Vec<ForeignMetric>, metric: &str, of: &Metric) -> Result<(), ForeignError> {
    let figures = of.figures();
    let metric = &name(metric);
    if figures.contains_key("avg") && figures.contains_key("max") {
        return trend(out, metric, of, &figures);
    }
    match (metric.as_str(), figures.get("rate").or(figures.get("value"))) {
        ("http_reqs" | "iterations" | "ws_sessions", Some(rate)) => {
            add(out, format!("{metric}_per_s"), "1/s", Better::Higher, *rate, 1.0)
        }
        ("checks", Some(share)) => {
            add(out, "checks_share".into(), "share", Better::Higher, *share, 1.0)
        }
        ("http_req_failed", Some(share)) => {
            add(out, "http_req_failed_share".into(), "share", Better::Lower, *share, 1.0)
        }
        _ => Ok(()),
    }
}

fn trend(
    out: &mut Vec<ForeignMetric>,
    metric: &str,
    of: &Metric,
    figures: &BTreeMap<&str, f64>,
) -> Result<(), ForeignError> {
    let is_time = of.is_time(metric);
    for (figure, found) in figures {
        let Some(suffix) = suffix(figure) else { continue };
        let (name, unit, factor) = if is_time {
            (format!("{metric}_ns_{suffix}"), "ns", NS_PER_MS)
        } else {
            (format!("{metric}_{suffix}"), "", 1.0)
        };
        add(out, name, unit, Better::Lower, *found, factor)?;
    }
    Ok(())
}

/// `med` is p50, `p(99.9)` is p999; `None` of another figure.
fn suffix(figure: &str) -> Option<String> {
    let quantile = match figure {
        "avg" => return Some("mean".into()),
        "min" | "max" => return Some(figure.into()),
        "med" => "50",
        figure => figure.strip_prefix("p(")?.strip_suffix(')')?,
    };
    let is_number = quantile.parse::<f64>().is_ok_and(|percent| (0.0..=100.0).contains(&percent));
    let digits: String = quantile.chars().filter(char::is_ascii_digit).collect();
    (is_number && digits.len() <= 6 && !digits.is_empty()).then(|| format!("p{digits}"))
}

fn add(
    out: &mut Vec<ForeignMetric>,
    name: String,
    unit: &'static str,
    better: Better,
    found: f64,
    factor: f64,
) -> Result<(), ForeignError> {
    let values = vec![Some(value(TOOL, "a figure", found, factor)?)];
    out.push(ForeignMetric { name, unit, better, values });
    at_most(TOOL, "figures", out.len(), ENTRIES_MAX * 10)
}
