//! The arm to take, and what a search says of its switches.

use std::collections::BTreeMap;

use model::{ArmKind, ArmOutcome, Better, MetricOutcome, Outcome, Verdict};

use super::{Remark, interval, median, steps};
use crate::screen::Tone;
use crate::{units, wording};

/// The arm with the best ratio among those judged better.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// Its switches: `spin, batch and gso`.
    pub switches: String,
    pub median: Option<String>,
    pub baseline: Option<String>,
    pub ratio: String,
    pub interval: Option<String>,
    /// True if each of its switches was shown to be needed.
    pub is_minimal: bool,
    /// Those of its switches that helped when they were added, if not all did.
    pub helpful: Option<String>,
}

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

/// The variant with the best ratio among those judged better.
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
        let ratio = metric.ratio.filter(|_| metric.verdict == Some(Verdict::Better))?;
        Some((arm, metric, ratio))
    });
    // Of equal ratios the first one wins: it has fewer switches.
    let beats = |metric: &MetricOutcome, ratio: f64, other: f64| match metric.better {
        Better::Lower => ratio < other,
        Better::Higher => ratio > other,
    };
    let best = better.reduce(|best, next| if beats(next.1, next.2, best.2) { next } else { best });
    best.map(|(arm, metric, _)| (arm, metric))
}

/// The headline of a metric, and its best arm.
pub(super) fn best_text(
    outcome: &Outcome,
    arm: &ArmOutcome,
    metric: &MetricOutcome,
    name: &str,
) -> (String, Best) {
    let baseline = outcome.arms.iter().find(|arm| arm.kind == ArmKind::Baseline);
    let helpful = steps::helpful(outcome, arm, name);
    let some_helped = !helpful.is_empty() && helpful.len() < arm.switches.len();
    let best = Best {
        switches: wording::listed(&arm.switches),
        median: median(metric),
        baseline: baseline.and_then(|arm| median(arm.metrics.get(name)?)),
        ratio: units::ratio(metric.ratio.unwrap_or(1.0)),
        interval: interval(metric),
        is_minimal: outcome.search.is_some() && outcome.idle_member().is_none(),
        helpful: some_helped.then(|| wording::listed(&helpful)),
    };
    let mut headline = format!("best arm {}", arm.name);
    if let Some(median) = &best.median {
        headline.push_str(&format!(", {median}"));
    }
    headline.push_str(&format!(", {} of baseline", best.ratio));
    if let Some(interval) = &best.interval {
        headline.push_str(&format!(" {interval}"));
    }
    (headline, best)
}

/// Reason why a metric has no best arm.
pub(super) fn none_better(outcome: &Outcome, name: &str) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for arm in outcome.arms.iter().filter(|arm| arm.kind == ArmKind::Variant) {
        if let Some(verdict) = arm.metrics.get(name).and_then(|metric| metric.verdict) {
            *counts.entry(wording::verdict(verdict)).or_default() += 1;
        }
    }
    let counts: Vec<_> = counts.iter().map(|(word, n)| format!("{n} {word}")).collect();
    match counts.is_empty() {
        true => "no arm was judged".into(),
        false => format!("no arm shown to be better than baseline ({})", counts.join(", ")),
    }
}
