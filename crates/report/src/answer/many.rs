//! Sentences about several runs: two series of runs, and one experiment on many hosts.

use model::pool::{PooledMetric, PooledOutcome};
use model::{ArmComparison, MetricComparison, RunComparison, Verdict};

use super::words::{Words, both_values, percent, range};
use super::{Sentence, capital, ended, within};
use crate::{units, wording};

/// Changes that are told of each metric; more are counted.
const CHANGES_MAX: usize = 3;

/// Returns a sentence for each judged metric of two series: the arms that changed, or that none did.
pub(crate) fn compared(comparison: &RunComparison) -> Vec<Sentence> {
    comparison.judged.iter().map(|name| series_sentence(comparison, name)).collect()
}

/// An arm of two series, and its figures of one metric.
type SeriesArm<'a> = (&'a ArmComparison, &'a MetricComparison);

fn series_sentence(comparison: &RunComparison, name: &str) -> Sentence {
    let arms: Vec<SeriesArm<'_>> =
        (comparison.arms.iter()).filter_map(|arm| Some((arm, arm.metrics.get(name)?))).collect();
    let label = wording::metric(name);
    for verdict in [Verdict::Worse, Verdict::Better] {
        let changed = arms_with_verdict(&arms, verdict);
        if changed.is_empty() {
            continue;
        }
        let told = changed.iter().take(CHANGES_MAX);
        let mut said: Vec<String> =
            told.map(|(arm, metric)| format!("{}.", series_change(arm, metric, name))).collect();
        if changed.len() > CHANGES_MAX {
            said.push(format!("And {} more.", changed.len() - CHANGES_MAX));
        }
        let text = format!("{label}: {}", said.join(" "));
        return Sentence::new(Some(name), text, wording::tone(Some(verdict)));
    }
    let equal = arms_with_verdict(&arms, Verdict::NoDifferenceShown);
    let judged = arms.iter().filter(|(_, metric)| metric.value.is_some()).count();
    if judged > 0 && equal.len() == judged {
        let resolution = percent(comparison.resolve - 1.0);
        let text = format!("{label}: no arm changed by {resolution} or more.");
        return Sentence::new(Some(name), text, wording::tone(Some(Verdict::NoDifferenceShown)));
    }
    let why = arms.iter().find_map(|(_, metric)| metric.why.as_deref());
    let text = match why {
        Some(why) => format!("{label}: not decided: {}", ended(why)),
        None => {
            let open = judged - equal.len();
            format!("{label}: not decided for {}.", units::plural(open as u32, "arm"))
        }
    };
    Sentence::new(Some(name), text, wording::tone(Some(Verdict::Inconclusive)))
}

fn arms_with_verdict<'a>(arms: &[SeriesArm<'a>], verdict: Verdict) -> Vec<SeriesArm<'a>> {
    let mut arms = arms.to_vec();
    arms.retain(|(_, metric)| {
        metric.value.as_ref().is_some_and(|change| change.verdict == verdict)
    });
    arms
}

/// `new is 5 % slower than before: 12 µs in place of 11 (95 %: 4 to 6 % slower)`.
fn series_change(arm: &ArmComparison, metric: &MetricComparison, name: &str) -> String {
    let words = Words::new(name, &metric.unit, metric.better, false);
    let Some(change) = &metric.value else { return arm.name.clone() };
    let values = metric.new.zip(metric.old);
    let values = values.map(|(new, old)| format!(": {}", both_values(new, old, &metric.unit)));
    let interval = change
        .low
        .map(|low| format!(" (95 %: {})", range(low, change.high, metric.better, &words)));
    let word = if change.verdict == Verdict::Worse { words.worse } else { words.better };
    format!(
        "{} {} {} {word} than before{}{}",
        arm.name,
        words.verb,
        words.amount(change.ratio),
        values.unwrap_or_default(),
        interval.unwrap_or_default()
    )
}

/// Returns a sentence for each arm and judged metric of one experiment on many hosts.
pub(crate) fn pooled(outcome: &PooledOutcome) -> Vec<Sentence> {
    let mut said = Vec::new();
    for name in &outcome.judged {
        for arm in &outcome.arms {
            let Some(metric) = arm.metrics.get(name) else { continue };
            let text = on_hosts(outcome, &arm.name, metric, name);
            let text = if outcome.judged.len() > 1 {
                format!("{}: {}", wording::metric(name), within(&text))
            } else {
                text
            };
            said.push(Sentence::new(Some(name), text, wording::tone(metric.verdict)));
        }
    }
    said
}

/// `+spin is 12 % faster on average over 12 hosts (95 %: 9 to 15 % faster): helped 10 of them, hurt 0.`
fn on_hosts(outcome: &PooledOutcome, arm: &str, metric: &PooledMetric, name: &str) -> String {
    let unit = model::stated_unit(name).map_or("", |(unit, _)| unit);
    let words = Words::new(name, unit, metric.better, false);
    let hosts = units::plural(metric.hosts, "host");
    let interval = metric.low.map(|low| range(low, metric.high, metric.better, &words));
    let counts = format!("helped {} of them, hurt {}", metric.helped, metric.hurt);
    let Words { verb, worse, better, .. } = words;
    match (metric.verdict, metric.ratio, interval) {
        (Some(verdict @ (Verdict::Better | Verdict::Worse)), Some(ratio), interval) => {
            let word = if verdict == Verdict::Worse { worse } else { better };
            let interval = interval.map_or(String::new(), |said| format!(" (95 %: {said})"));
            let amount = words.amount(ratio);
            format!("{arm} {verb} {amount} {word} on average over {hosts}{interval}: {counts}.")
        }
        (Some(Verdict::NoDifferenceShown), _, interval) => {
            let interval = interval.map_or(String::new(), |said| format!(": {said}"));
            let asked = percent(outcome.resolve - 1.0);
            format!(
                "{arm} {verb} no {worse} and no {better} over {hosts}{interval} (asked: {asked})."
            )
        }
        (_, _, interval) => {
            let why = metric.why.as_deref().map(|why| capital(&ended(why)));
            match (interval, why) {
                (Some(range), why) => {
                    let why = why.map_or(String::new(), |why| format!(" {why}"));
                    format!("Not decided: {arm} {verb} {range} on average over {hosts}.{why}")
                }
                (None, Some(why)) => format!("Not decided over {hosts}: {arm}: {why}"),
                (None, None) => format!("Not decided over {hosts}: {arm}."),
            }
        }
    }
}
