//! Two experiments against each other, in words: what text and HTML both say.

use model::{ArmComparison, ArmKind, Change, MetricComparison, RunComparison, Verdict};

use crate::{units, words};

/// The newer run against the older in one word, by value or by worth: `worse`, `better`,
/// `mixed`, `no difference shown`, `inconclusive` or `refused`.
pub(crate) fn verdict(comparison: &RunComparison, by_worth: bool) -> (&'static str, Verdict) {
    let changes = || {
        comparison.values().filter_map(move |(_, _, metric)| {
            if by_worth { metric.worth.as_ref() } else { metric.value.as_ref() }
        })
    };
    let any = |wanted: Verdict| changes().any(|change| change.verdict == wanted);
    let (better, worse) = (any(Verdict::Better), any(Verdict::Worse));
    let verdict = if worse {
        Verdict::Worse
    } else if better {
        Verdict::Better
    } else if any(Verdict::Inconclusive) {
        Verdict::Inconclusive
    } else if any(Verdict::NoDifferenceShown) {
        Verdict::NoDifferenceShown
    } else {
        Verdict::Refused
    };
    (if better && worse { "mixed" } else { words::verdict(verdict) }, verdict)
}

/// The same in one sentence, without the word.
pub(crate) fn sentence(comparison: &RunComparison, by_worth: bool) -> String {
    let mut counts: Vec<(Verdict, Vec<String>)> = Vec::new();
    let mut most: Option<(f64, String)> = None;
    for (arm, name, metric) in comparison.values() {
        let change = if by_worth { &metric.worth } else { &metric.value };
        let Some(change) = change else { continue };
        let label = format!("{} of {}", words::metric(name), arm.name);
        if matches!(change.verdict, Verdict::Better | Verdict::Worse) {
            let far = change.ratio.ln().abs();
            if most.as_ref().is_none_or(|(other, _)| far > *other) {
                most = Some((far, format!("{label}, {}", short(change))));
            }
        }
        match counts.iter_mut().find(|(verdict, _)| *verdict == change.verdict) {
            Some((_, labels)) => labels.push(label),
            None => counts.push((change.verdict, vec![label])),
        }
    }
    let all: usize = counts.iter().map(|(_, labels)| labels.len()).sum();
    if all == 0 {
        return "no figure is in both runs".into();
    }
    counts.sort_by_key(|(verdict, _)| match verdict {
        Verdict::Worse => 0,
        Verdict::Better => 1,
        Verdict::Inconclusive => 2,
        _ => 3,
    });
    let parts: Vec<String> = counts
        .iter()
        .map(|(verdict, labels)| format!("{} {}", labels.len(), words::verdict(*verdict)))
        .collect();
    let mut text = format!("of {all} figures, {}", parts.join(", "));
    if let Some((_, most)) = most {
        text.push_str(&format!("; most of all {most}"));
    }
    text
}

/// `1.31× [1.27, 1.35] worse`.
pub(crate) fn short(change: &Change) -> String {
    let mut text = units::ratio(change.ratio);
    if let Some((low, high)) = change.low.zip(change.high) {
        text.push_str(&format!(" [{}, {}]", units::digits(low), units::digits(high)));
    }
    format!("{text} {}", words::verdict(change.verdict))
}

/// One arm and metric in one sentence.
pub(crate) fn of_metric(arm: &ArmComparison, metric: &MetricComparison) -> String {
    if let Some(why) = &metric.why {
        return format!("No verdict: {why}.");
    }
    let figure = |value: Option<f64>| {
        value.map_or("no figure".into(), |value| units::value(value, &metric.unit))
    };
    let mut text = format!("{} before, {} now", figure(metric.old), figure(metric.new));
    if let Some(value) = &metric.value {
        text.push_str(&format!(": {}", short(value)));
        if let (Some(reach), Verdict::Better | Verdict::Worse) = (value.reach, value.verdict) {
            text.push_str(&format!(", beyond the noise of both runs ({})", units::ratio(reach)));
        }
    }
    if let Some(worth) = &metric.worth {
        text.push_str(&format!("; worth against its own baseline {}", short(worth)));
    } else if arm.kind == ArmKind::Baseline {
        text.push_str("; the baseline itself");
    }
    text + "."
}

/// How noisy one metric is, in one sentence.
pub(crate) fn noise(comparison: &RunComparison, name: &str) -> String {
    let Some(noise) = comparison.noise.get(name) else { return String::new() };
    let floor = |floor: Option<model::Floor>| match floor {
        Some(f) => format!("{} to {}", units::ratio(f.low), units::ratio(f.high)),
        None => "not known".into(),
    };
    let drift = |ratio: Option<f64>| ratio.map_or("not known".into(), units::ratio);
    format!(
        "A/A floor {} before, {} now; the baseline's second half over its first {} before, {} now",
        floor(noise.old_floor),
        floor(noise.new_floor),
        drift(noise.old_drift),
        drift(noise.new_drift)
    )
}
