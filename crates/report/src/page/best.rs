//! The arm to take, and what a search says of its switches.

use std::collections::BTreeMap;

use model::{ArmKind, ArmOutcome, MetricOutcome, Outcome, Search, Verdict};

use super::{Remark, median, sentence, steps};
use crate::decision::percent;
use crate::screen::Tone;
use crate::{units, wording};

/// The set that a search found and what each member is worth; empty without a search.
pub(super) fn members(outcome: &Outcome) -> Vec<Remark> {
    let Some(search) = &outcome.search else { return Vec::new() };
    let baseline = outcome.arms.first().and_then(|arm| arm.metrics.get(&search.metric));
    let found = if !search.set.is_empty() {
        format!("{}, measured here", wording::listed(&search.set))
    } else if baseline.is_none_or(|metric| metric.median.is_none()) {
        "not known, as the baseline has no figure".to_owned()
    } else {
        "no switch is shown to help".to_owned()
    };
    let time = if search.out_of_time { "; the time was over before it ended" } else { "" };
    let text = format!(
        "{found}; the search by {} tried {} sets in {} trials of its own{time}{}",
        wording::metric(&search.metric),
        search.candidates,
        search.trials,
        pairs(search)
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
        let text = format!("dropped, not shown to matter{}", ratio.unwrap_or_default());
        Remark::new(&step.switch, text, Tone::Dim)
    }));
    remarks
}

/// Pairs named in a sentence; more are counted.
const PAIRS_NAMED_MAX: usize = 3;

/// `; 6 pairs of other switches were tried, and 4 never: b+c, b+d, c+d and 1 more`; empty if there is no pair.
fn pairs(search: &Search) -> String {
    let untried = search.untried_pairs.len();
    let names = search.untried_pairs.iter().take(PAIRS_NAMED_MAX).map(|pair| pair.join("+"));
    let mut names: Vec<String> = names.collect();
    if untried > PAIRS_NAMED_MAX {
        names.push(format!("{} more", untried - PAIRS_NAMED_MAX));
    }
    let names = wording::listed(&names);
    match (search.pairs.len() as u32, untried as u32) {
        (0, 0) => String::new(),
        (tried, 0) => {
            format!(
                "; {} of other switches tried, which is all of them",
                units::plural(tried, "pair")
            )
        }
        (0, untried) => {
            let of_others = units::plural(untried, "pair");
            format!("; {of_others} of other switches never tried: {names}")
        }
        (tried, untried) => format!(
            "; {} of other switches tried, and {untried} never: {names}",
            units::plural(tried, "pair")
        ),
    }
}

/// The best arm by a metric, with its figures.
pub(crate) fn best<'a>(
    outcome: &'a Outcome,
    name: &str,
) -> Option<(&'a ArmOutcome, &'a MetricOutcome)> {
    let best = outcome.best_arm(name)?;
    let arm = outcome.arms.iter().find(|arm| arm.name == best.arm)?;
    Some((arm, arm.metrics.get(name)?))
}

/// Switches up to which the sentence names each; an arm with more has its own name there.
const NAMED_MAX: usize = 4;

/// The answer of a metric that has a best arm, and that arm: `2.40 µs in place of 65.8 µs, 27.4 times faster (95 %: 27.1
/// times to 27.7 times), with spin`. Of several arms, `best of 10: ` comes first, and the interval holds for all of them.
pub(super) fn best_text<'a>(outcome: &'a Outcome, name: &str) -> Option<(&'a ArmOutcome, String)> {
    let best = outcome.best_arm(name)?;
    let arm = outcome.arms.iter().find(|arm| arm.name == best.arm)?;
    let means = match arm.switches.len() {
        1..=NAMED_MAX => wording::listed(&arm.switches),
        _ => arm.name.clone(),
    };
    let lead = if best.of > 1 { format!("best of {}: ", best.of) } else { String::new() };
    let change = change_text(outcome, arm.metrics.get(name)?, (best.low, best.high), name);
    Some((arm, format!("{lead}{change}, with {means}")))
}

/// `2.40 µs in place of 65.8 µs, 27.4 times faster (95 %: 27.1 times to 27.7 times)`.
///
/// - `ends`: of the interval.
fn change_text(
    outcome: &Outcome,
    metric: &MetricOutcome,
    ends: (Option<f64>, Option<f64>),
    name: &str,
) -> String {
    let baseline = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline);
    let baseline = baseline.and_then(|arm| median(arm.metrics.get(name)?));
    let values = median(metric).zip(baseline).map(|(new, old)| format!("{new} in place of {old}"));
    let parts = [values, sentence::change(metric, ends, name)];
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
        let change = change_text(outcome, metric, (metric.low, metric.high), name);
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
