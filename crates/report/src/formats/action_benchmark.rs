//! JSON of the action `benchmark-action/github-action-benchmark`, for its tools `customSmallerIsBetter` and
//! `customBiggerIsBetter`.

use model::{ArmKind, ArmOutcome, Better, MetricOutcome, Outcome};
use serde::Serialize;

use super::one_line;
use crate::page::{change, interval};
use crate::{units, wording};

#[derive(Serialize)]
struct Entry {
    name: String,
    unit: String,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<String>,
}

/// Returns a JSON list with the median, and the ratio to the baseline, of each arm and judged metric for which the given
/// direction is the better one: a file of the action has one direction.
///
/// Source: the action's documentation of custom benchmarks.
pub fn to_action_benchmark(outcome: &Outcome, better: Better) -> String {
    let mut entries = Vec::new();
    for name in &outcome.judged {
        // The second baseline would raise alarms of its own.
        for arm in outcome.arms.iter().filter(|arm| arm.kind != ArmKind::Control) {
            let metric = arm.metrics.get(name).filter(|metric| metric.better == better);
            let Some(metric) = metric else { continue };
            entries.extend(median(outcome, arm, name, metric));
            entries.extend(ratio(outcome, arm, name, metric));
        }
    }
    let text = serde_json::to_string_pretty(&entries).expect("only strings and finite numbers");
    text + "\n"
}

/// Judged metrics of a result for which the other direction is the better one.
pub fn action_benchmark_left_out(outcome: &Outcome, better: Better) -> usize {
    let directions = outcome.judged.iter().filter_map(|name| {
        outcome.arms.iter().find_map(|arm| arm.metrics.get(name)).map(|metric| metric.better)
    });
    directions.filter(|direction| *direction != better).count()
}

fn entry_name(outcome: &Outcome, arm: &ArmOutcome, metric: &str, what: &str) -> String {
    let subject = wording::subject(&outcome.path, &outcome.load);
    one_line(&format!("{subject}: {}: {metric}{what}", arm.name))
}

fn median(
    outcome: &Outcome,
    arm: &ArmOutcome,
    name: &str,
    metric: &MetricOutcome,
) -> Option<Entry> {
    let value = metric.median.filter(|value| value.is_finite())?;
    let values: Vec<f64> = metric.trials.iter().flatten().copied().collect();
    Some(Entry {
        name: entry_name(outcome, arm, name, ""),
        unit: one_line(&metric.unit),
        value,
        range: spread(&values),
        extra: evidence(metric),
    })
}

/// `1.2 to 1.4`: the least and the greatest trial.
fn spread(values: &[f64]) -> Option<String> {
    let least = values.iter().copied().reduce(f64::min).filter(|value| value.is_finite())?;
    let most = values.iter().copied().reduce(f64::max).filter(|value| value.is_finite())?;
    Some(format!("{} to {}", units::digits(least), units::digits(most)))
}

fn evidence(metric: &MetricOutcome) -> Option<String> {
    let verdict = metric.verdict.map(|verdict| wording::verdict(verdict).to_owned());
    let parts = [change(metric), interval(metric), verdict];
    let parts = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    (!parts.is_empty()).then(|| format!("{parts} (against the baseline of the run)"))
}

fn ratio(outcome: &Outcome, arm: &ArmOutcome, name: &str, metric: &MetricOutcome) -> Option<Entry> {
    let value = metric.ratio.filter(|value| value.is_finite())?;
    Some(Entry {
        name: entry_name(outcome, arm, name, ", ratio to the baseline"),
        unit: "ratio".into(),
        value,
        range: interval(metric),
        extra: metric.verdict.map(|verdict| wording::verdict(verdict).to_owned()),
    })
}
