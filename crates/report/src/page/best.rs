//! The arm to take, and what a search says of its switches.

use std::collections::BTreeMap;

use model::{ArmKind, ArmOutcome, Better, MetricOutcome, Outcome, Verdict};

use super::{Remark, median, sentence, steps};
use crate::decision::percent;
use crate::screen::Tone;
use crate::{units, wording};

/// The set that a search found and what each member is worth; empty without a search.
pub(super) fn members(outcome: &Outcome) -> Vec<Remark> {
    let Some(search) = &outcome.search else { return Vec::new() };
    let baseline = outcome.arms.first().and_then(|arm| arm.metrics.get(&search.metric));
    let found = match search.set.is_empty() {
        true if baseline.is_none_or(|metric| metric.median.is_none()) => {
            "not known, as the baseline has no figure".to_owned()
        }
        true => "no switch helps".to_owned(),
        false => format!("{}, measured here", wording::listed(&search.set)),
    };
    let time = if search.out_of_time { "; the time was over before it ended" } else { "" };
    let text = format!(
        "{found}; the search by {} tried {} sets in {} trials of its own{time}",
        wording::metric(&search.metric),
        search.candidates,
        search.trials
    );
    let mut remarks = vec![Remark::new("best set", text, Tone::Strong)];
    remarks.extend(outcome.members().iter().map(|member| {
        let (word, tone) = match member.verdict {
            Verdict::Better => ("worse without it", Tone::Good),
            Verdict::Unsupported => ("cannot run without it", Tone::Good),
            _ => ("not shown to be worse without it", Tone::Doubt),
        };
        let interval = member.low.zip(member.high).map(|(low, high)| units::interval(low, high));
        let text = match member.ratio {
            Some(ratio) => format!(
                "{word}: the set is {} {} of the set without it",
                units::ratio(ratio),
                interval.unwrap_or_default()
            ),
            None => word.to_owned(),
        };
        Remark::new(&member.switch, text, tone)
    }));
    let dropped = search.steps.iter().filter(|step| !step.added);
    remarks.extend(dropped.map(|step| {
        let ratio = step.ratio.map(|r| format!(": {} with it", units::ratio(r)));
        let text = format!(
            "dropped, because the set was not worse without it{}",
            ratio.unwrap_or_default()
        );
        Remark::new(&step.switch, text, Tone::Dim)
    }));
    remarks
}

/// The variant with the best value among those judged better.
pub(crate) fn best<'a>(
    outcome: &'a Outcome,
    name: &str,
) -> Option<(&'a ArmOutcome, &'a MetricOutcome)> {
    // After a search only its set is recommended.
    let is_found = |arm: &&ArmOutcome| {
        arm.kind == ArmKind::Variant
            && outcome.search.as_ref().is_none_or(|search| arm.switches == search.set)
    };
    let better = outcome.arms.iter().filter(is_found).filter_map(|arm| {
        let metric = arm.metrics.get(name)?;
        let is_better = metric.verdict == Some(Verdict::Better);
        // Beside the values a reader would not understand the best ratio, which may be another arm's.
        let value = metric.median.or(metric.ratio).filter(|_| is_better)?;
        Some((arm, metric, value))
    });
    // Of equal values the first one wins: it has fewer switches.
    let beats = |metric: &MetricOutcome, value: f64, other: f64| match metric.better {
        Better::Lower => value < other,
        Better::Higher => value > other,
    };
    let best = better.reduce(|best, next| if beats(next.1, next.2, best.2) { next } else { best });
    best.map(|(arm, metric, _)| (arm, metric))
}

/// Switches up to which the sentence names each; an arm with more has its own name there.
const NAMED_MAX: usize = 4;

/// The answer of a metric that has a best arm: `2.40 µs in place of 65.8 µs, 27.4 times faster (95 %: 27.1 times to 27.7 times), with spin`.
pub(super) fn best_text(
    outcome: &Outcome,
    arm: &ArmOutcome,
    metric: &MetricOutcome,
    name: &str,
) -> String {
    let means = match arm.switches.len() {
        1..=NAMED_MAX => wording::listed(&arm.switches),
        _ => arm.name.clone(),
    };
    format!("{}, with {means}", change_text(outcome, metric, name))
}

/// `2.40 µs in place of 65.8 µs, 27.4 times faster (95 %: 27.1 times to 27.7 times)`.
fn change_text(outcome: &Outcome, metric: &MetricOutcome, name: &str) -> String {
    let baseline = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline);
    let baseline = baseline.and_then(|arm| median(arm.metrics.get(name)?));
    let values = median(metric).zip(baseline).map(|(new, old)| format!("{new} in place of {old}"));
    let parts = [values, sentence::change(metric, name)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Qualification of the best arm: which of its switches are needed; `None` if that is not known.
pub(super) fn advice(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> Option<String> {
    if outcome.search.is_some() && outcome.idle_member().is_none() {
        return Some("Switch them on: each was shown to be needed.".into());
    }
    let helpful = steps::helpful(outcome, arm, name);
    let some_helped = !helpful.is_empty() && helpful.len() < arm.switches.len();
    some_helped.then(|| {
        format!(
            "Of these, {} gave something when added; prove a set of them alone with --arms before you take it.",
            wording::listed(&helpful)
        )
    })
}

/// `no difference of 5 % or more`.
fn no_difference(outcome: &Outcome) -> String {
    format!("no difference of {} or more", percent(outcome.resolve - 1.0))
}

/// The answer of a metric without an arm that was shown to be better, and its tone.
pub(super) fn none_better(outcome: &Outcome, name: &str) -> (String, Tone) {
    let variants = outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant);
    let judged: Vec<(&ArmOutcome, &MetricOutcome, Verdict)> = variants
        .filter_map(|arm| {
            let metric = arm.metrics.get(name)?;
            Some((arm, metric, metric.verdict?))
        })
        .collect();
    if let [(arm, metric, verdict)] = judged.as_slice()
        && metric.ratio.is_some()
    {
        let change = change_text(outcome, metric, name);
        let lead = match verdict {
            Verdict::Worse => Some(("worse".to_owned(), Tone::Bad)),
            Verdict::NoDifferenceShown => Some((no_difference(outcome), Tone::Dim)),
            Verdict::Inconclusive => Some(("not decided".to_owned(), Tone::Doubt)),
            Verdict::Exploratory => Some(("exploratory".to_owned(), Tone::Doubt)),
            _ => None,
        };
        if let Some((lead, tone)) = lead {
            return (format!("{lead} with {}: {change}", arm.name), tone);
        }
    }
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, _, verdict) in &judged {
        *counts.entry(wording::verdict(*verdict)).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    let any_worse = judged.iter().any(|(_, _, verdict)| *verdict == Verdict::Worse);
    if counts.is_empty() {
        ("no arm was judged".into(), Tone::Doubt)
    } else {
        let text = format!("no arm shown to be better than baseline ({})", counts.join(", "));
        (text, if any_worse { Tone::Bad } else { Tone::Dim })
    }
}
