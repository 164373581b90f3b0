//! The answer: the best arm, then one sentence per switch.

use model::{ArmKind, ArmOutcome, Ended, Outcome, Support, Verdict};

use super::escape;
use crate::{units, words};

pub(super) fn answer(outcome: &Outcome) -> String {
    let mut out = String::new();
    if outcome.ended == Ended::Unfinished {
        out.push_str("<p class=\"notice\">Not finished: these are the trials so far.</p>");
    }
    if let Some(fault) = words::control_fault(outcome) {
        let fault = escape(&fault);
        out.push_str(&format!("<p class=\"notice\">Do not trust this run: {fault}.</p>"));
    }
    out.push_str("<ul class=\"headlines\">");
    for headline in words::headlines(outcome) {
        let (metric, rest) = headline.split_once(": ").unwrap_or(("", &headline));
        out.push_str(&format!("<li><b>{}</b> {}</li>", escape(metric), escape(rest)));
    }
    out.push_str("</ul>");
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
        out.push_str(&format!("<h3>By arm: {label}</h3><ul class=\"arms\">{rows}</ul>"));
    }
    out
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
    if let Some(rung) = rung_before(outcome, arm)
        && let Some(step) = step(rung, arm, name)
    {
        text.push_str(&format!(" On top of {}: {}.", rung.name, step.words()));
    }
    (class, text)
}

/// The arm that ran with the most of this arm's switches and no other.
fn rung_before<'a>(outcome: &'a Outcome, arm: &ArmOutcome) -> Option<&'a ArmOutcome> {
    outcome
        .arms
        .iter()
        .filter(|other| {
            other.kind == ArmKind::Variant
                && other.trials > 0
                && !other.switches.is_empty()
                && other.switches.len() < arm.switches.len()
                && other.switches.iter().all(|switch| arm.switches.contains(switch))
        })
        .max_by_key(|other| other.switches.len())
}

/// What an arm changes against another that is not the baseline.
#[derive(Debug, PartialEq)]
struct Step {
    ratio: f64,
    low: f64,
    high: f64,
}

impl Step {
    fn words(&self) -> String {
        format!(
            "{} [{}, {}]{}",
            units::ratio(self.ratio),
            units::digits(self.low),
            units::digits(self.high),
            if self.low <= 1.0 && self.high >= 1.0 { ", no difference shown" } else { "" }
        )
    }
}

/// Median of the blocks' ratios between two arms, with the sign test's interval:
/// exact whatever the distribution, at least 95 %. `None` under six blocks, where
/// there is no such interval.
///
/// Source: Conover, "Practical Nonparametric Statistics", section 3.2.
fn step(from: &ArmOutcome, to: &ArmOutcome, name: &str) -> Option<Step> {
    let (from, to) = (from.metrics.get(name)?, to.metrics.get(name)?);
    let mut ratios: Vec<f64> = std::iter::zip(&from.trials, &to.trials)
        .filter_map(|(from, to)| Some(to.as_ref()? / from.as_ref()?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    ratios.sort_by(f64::total_cmp);
    let n = ratios.len();
    // Trim from each end while the chance of the median lying there stays ≤ 2.5 %.
    let mut chance = 0.5f64.powi(i32::try_from(n).ok()?);
    let (mut beyond, mut trim) = (0.0, 0);
    while trim < n && beyond + chance <= 0.025 {
        beyond += chance;
        trim += 1;
        chance *= (n + 1 - trim) as f64 / trim as f64;
    }
    let low = *ratios.get(trim.checked_sub(1)?)?;
    let median = (ratios[(n - 1) / 2] * ratios[n / 2]).sqrt();
    Some(Step { ratio: median, low, high: ratios[n - trim] })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Better, MetricOutcome};

    use super::*;

    fn arm(values: &[f64]) -> ArmOutcome {
        let metric = MetricOutcome {
            unit: "ns".into(),
            better: Better::Lower,
            median: None,
            ratio: None,
            low: None,
            high: None,
            p: None,
            verdict: None,
            why: None,
            trials: values.iter().map(|v| v.is_finite().then_some(*v)).collect(),
        };
        ArmOutcome {
            name: String::new(),
            kind: ArmKind::Variant,
            switches: Vec::new(),
            support: Support::Yes,
            trials: values.len() as u32,
            metrics: BTreeMap::from([("m".into(), metric)]),
            latency: BTreeMap::new(),
            mode: BTreeMap::new(),
            counters: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    #[test]
    fn the_sign_tests_interval_is_that_of_the_tables() {
        // n = 6: the whole range (96.9 %); n = 10: second to ninth (97.9 %);
        // n = 20: sixth to fifteenth (95.9 %).
        for (n, low, high) in [(6, 1.0, 6.0), (10, 2.0, 9.0), (20, 6.0, 15.0)] {
            let ones = arm(&vec![1.0; n]);
            let counting = arm(&(1..=n).map(|i| i as f64).collect::<Vec<_>>());
            let step = step(&ones, &counting, "m").unwrap();
            assert_eq!((step.low, step.high), (low, high), "n = {n}");
        }
        assert_eq!(step(&arm(&[1.0; 5]), &arm(&[2.0; 5]), "m"), None);
    }

    #[test]
    fn a_drift_of_the_machine_cancels_and_missing_trials_are_left_out() {
        let drifting: Vec<f64> = (1..=12).map(f64::from).collect();
        let mut halved: Vec<f64> = drifting.iter().map(|v| v / 2.0).collect();
        halved[3] = f64::NAN;
        let step = step(&arm(&drifting), &arm(&halved), "m").unwrap();
        assert_eq!(step, Step { ratio: 0.5, low: 0.5, high: 0.5 });
    }
}
