//! Proof of a stage from the outcomes of its hosts.

use fleet::rollout::{Proof, StepAnswer, Wants, gate};
use model::pool::pool;
use model::statistics::median;
use model::{ArmKind, Outcome};
use runner::WHOLE_PLAN;

/// Outcome of a host, judged by the metric of the roll-out alone.
pub(super) type Figure = Result<Outcome, StepAnswer>;

/// Reads the answer to a measurement.
pub(super) fn figure(answer: StepAnswer, metric: &str) -> Figure {
    let StepAnswer::Done(text) = answer else { return Err(answer) };
    let outcome =
        serde_json::from_str(&text).map_err(|error| format!("its outcome cannot be read: {error}"));
    outcome.and_then(|outcome| judged(outcome, metric)).map_err(StepAnswer::Failed)
}

/// The outcome with one judged metric, and without arms of parts of the plan. Errors: it has no such metric.
///
/// - `metric`: a name such as `rtt_ns_p99`, or words of it such as `rtt p99`.
fn judged(mut outcome: Outcome, metric: &str) -> Result<Outcome, String> {
    let exact = outcome.judged.iter().find(|name| *name == metric);
    let found: Vec<&String> = match exact {
        Some(name) => vec![name],
        None => outcome.judged.iter().filter(|name| has_words(name, metric)).collect(),
    };
    let [name] = found.as_slice() else {
        let all = outcome.judged.join(", ");
        let which = if found.is_empty() { "no" } else { "more than one" };
        return Err(format!(
            "{which} judged metric of this load is {metric:?}; --metric takes one of {all}"
        ));
    };
    let name = (*name).clone();
    outcome.judged = vec![name];
    outcome.arms.retain(|arm| {
        matches!(arm.kind, ArmKind::Baseline | ArmKind::Control) || arm.name == WHOLE_PLAN
    });
    Ok(outcome)
}

/// True if all words of `metric` are among those of the name.
fn has_words(name: &str, metric: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    metric.split_whitespace().all(|word| parts.contains(&word))
}

/// Figure of a host without the plan.
pub(super) fn level(outcome: &Outcome) -> Option<f64> {
    let base = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline)?;
    base.metrics.get(outcome.judged.first()?)?.median
}

/// - `stage`: name and figure of each host.
/// - `control`: place and figure of each untouched host.
/// - `levels`: figure of every host in the baseline.
pub(super) fn proof(
    stage: Vec<(String, Figure)>,
    control: &[(usize, Figure)],
    levels: &[Option<f64>],
    wants: Wants,
) -> Proof {
    let untouched: Vec<(usize, &Outcome)> =
        control.iter().filter_map(|(at, figure)| Some((*at, figure.as_ref().ok()?))).collect();
    let odd = untouched.iter().filter(|(_, outcome)| !outcome.differing().is_empty()).count();
    let moved = untouched.iter().filter_map(|(at, outcome)| {
        let then = levels.get(*at).copied().flatten().filter(|then| *then > 0.0)?;
        Some(level(outcome)? / then)
    });
    let control_drift = median(&moved.collect::<Vec<f64>>());
    let outcomes: Vec<(String, Result<Outcome, String>)> = stage
        .into_iter()
        .map(|(host, figure)| (host, figure.map_err(StepAnswer::into_text)))
        .collect();
    let mut pooled = pool(&outcomes);
    let metric = pooled.judged.first().cloned().unwrap_or_default();
    let plan = pooled.arms.first_mut().and_then(|arm| arm.metrics.remove(&metric));
    Proof {
        gate: gate(plan.as_ref(), wants, (untouched.len(), odd), pooled.resolve),
        plan,
        live: None,
        control_count: control.len(),
        control_drift,
    }
}
