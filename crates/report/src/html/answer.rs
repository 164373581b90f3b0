//! The answer: what to switch on and what it gives, then one sentence per switch.

use model::{ArmKind, ArmOutcome, Ended, MetricOutcome, Outcome, Support, Verdict};

use super::escape;
use crate::{steps, units, words};

pub(super) fn answer(outcome: &Outcome) -> String {
    let mut out = String::new();
    if outcome.ended == Ended::Unfinished {
        out.push_str("<p class=\"notice\">Not finished: these are the trials so far.</p>");
    }
    if let Some(fault) = words::control_fault(outcome) {
        let fault = escape(&fault);
        out.push_str(&format!("<p class=\"notice\">Do not trust this run: {fault}.</p>"));
    }
    let headlines = outcome.judged.iter().map(|name| advice(outcome, name));
    out.push_str(&format!("<ul class=\"headlines\">{}</ul>", headlines.collect::<String>()));
    let Some(metric) = outcome.judged.first() else { return out };
    let rows: String = outcome
        .arms
        .iter()
        .filter(|arm| matches!(arm.kind, ArmKind::Variant | ArmKind::Peer))
        .map(|arm| {
            let (class, text) = sentence(outcome, arm, metric);
            format!(
                "<li class=\"{class}\"><b>{}</b><span>{}</span></li>",
                escape(&arm.name),
                escape(&text)
            )
        })
        .collect();
    if !rows.is_empty() {
        let label = escape(&words::metric(metric));
        out.push_str(&format!("<h3>Switch by switch: {label}</h3><ul class=\"arms\">{rows}</ul>"));
    }
    out
}

/// What to switch on for one metric, and what that gives, beside the noise.
fn advice(outcome: &Outcome, name: &str) -> String {
    let label = escape(&words::metric(name));
    let floor = match outcome.floor.get(name) {
        Some(floor) => format!("{} to {}", units::ratio(floor.low), units::ratio(floor.high)),
        None => "not known".into(),
    };
    let Some((arm, metric)) = words::best(outcome, name) else {
        let headline = words::headline(outcome, name);
        let (_, why) = headline.split_once(": ").unwrap_or(("", &headline));
        let why = escape(why);
        return format!(
            "<li class=\"muted\"><b>{label}</b><span>Nothing to switch on: {why}. Noise floor: \
             {floor}.</span></li>"
        );
    };
    let value = |metric: &MetricOutcome| Some(units::value(metric.median?, &metric.unit));
    let baseline = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline);
    let before = baseline.and_then(|arm| value(arm.metrics.get(name)?));
    let change = match (value(metric), before) {
        (Some(now), Some(before)) => format!(": {now} instead of {before}"),
        (Some(now), None) => format!(": {now}"),
        _ => String::new(),
    };
    let interval =
        words::interval(metric).map_or(String::new(), |i| format!(", 95 % interval {i}"));
    let helped = steps::helpful(outcome, arm, name);
    let helped = match helped.is_empty() || helped.len() == arm.switches.len() {
        true => String::new(),
        false => format!(" Of these, {} gave something when added.", words::listed(&helped)),
    };
    format!(
        "<li class=\"good\"><b>{label}</b><span>Switch on <strong>{}</strong>{}, \
         <strong>{}</strong> of the baseline{interval}. Noise floor: {floor}.{}</span></li>",
        escape(&words::listed(&arm.switches)),
        escape(&change),
        units::ratio(metric.ratio.unwrap_or(1.0)),
        escape(&helped),
    )
}

fn sentence(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> (&'static str, String) {
    match &arm.support {
        Support::Unsupported { what, .. } => return ("muted", format!("Cannot run here: {what}.")),
        Support::Refused { why } => return ("muted", format!("Not run: {why}.")),
        Support::Yes => {}
    }
    let Some(metric) = arm.metrics.get(name) else { return ("muted", "No figure.".into()) };
    let class = super::verdict_class(metric.verdict);
    let why = metric.why.as_deref().unwrap_or("no reason given");
    let verdict = match metric.verdict {
        Some(Verdict::Refused) => return (class, format!("No figure: {why}.")),
        Some(Verdict::NotEffective) => format!("not effective ({why})"),
        Some(verdict) => words::verdict(verdict).into(),
        None => "not judged".into(),
    };
    let mut text = verdict;
    if let Some(first) = text.get(..1) {
        text.replace_range(..1, &first.to_uppercase());
    }
    if let Some(median) = metric.median {
        text.push_str(&format!(": {}", units::value(median, &metric.unit)));
    }
    if let Some(ratio) = metric.ratio {
        text.push_str(&format!(", {} of baseline", units::ratio(ratio)));
        if let Some(interval) = words::interval(metric) {
            text.push_str(&format!(" {interval}"));
        }
    }
    text.push('.');
    if let Some(rung) = steps::rung_below(outcome, arm)
        && let Some(step) = steps::step(outcome, rung, arm, name)
    {
        let verdict = words::verdict(step.verdict);
        text.push_str(&format!(" On top of {}: {}, {verdict}.", rung.name, step.words()));
    }
    (class, text)
}
