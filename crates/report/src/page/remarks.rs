//! Sentences about a run and its arms: answers, and what qualifies them.

use std::collections::BTreeMap;

use model::{ArmOutcome, Outcome, Support, VERSION_MODE, Verdict};

use super::{Failures, Remark, change, interval, median, steps};
use crate::screen::Tone;
use crate::{units, wording};

/// Conditions that qualify the results, each once.
pub(super) fn warnings(outcome: &Outcome) -> Vec<Remark> {
    let older = (outcome.schema < 2).then(|| {
        let advice = "not corrected for the number of verdicts, and failed trials were left out";
        Remark::new("judged by older rules", advice, Tone::Doubt)
    });
    let others = outcome.warnings.iter().map(|w| Remark::new(&w.what, &w.advice, Tone::Doubt));
    older.into_iter().chain(others).collect()
}

pub(super) fn answers(outcome: &Outcome) -> Vec<Remark> {
    let Some(name) = outcome.judged.first() else { return Vec::new() };
    let arms = outcome.arms.iter();
    arms.filter(|arm| arm.kind.is_compared())
        .map(|arm| {
            let (tone, text) = answer(outcome, arm, name);
            Remark::new(&arm.name, text, tone)
        })
        .collect()
}

fn answer(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> (Tone, String) {
    match &arm.support {
        Support::Unsupported { what, .. } => {
            return (Tone::Dim, format!("Cannot run here: {what}."));
        }
        Support::Refused { why } => return (Tone::Dim, format!("Not run: {why}.")),
        Support::Yes => {}
    }
    let Some(metric) = arm.metrics.get(name) else { return (Tone::Dim, "No figure.".into()) };
    let tone = wording::tone(metric.verdict);
    let why = metric.why.as_deref().unwrap_or("no reason given");
    let mut text = match metric.verdict {
        Some(Verdict::Refused) => return (tone, format!("No figure: {why}.")),
        Some(Verdict::NotEffective) => format!("Not effective ({why})"),
        Some(verdict) => wording::capitalised(wording::verdict(verdict)),
        None => "Not judged".into(),
    };
    if let Some(median) = median(metric) {
        text.push_str(&format!(": {median}"));
    }
    let of = if metric.ratio.is_some() { "of baseline" } else { "a trial" };
    if let Some(change) = change(metric) {
        text.push_str(&format!(", {change} {of}"));
        if let Some(interval) = interval(metric) {
            text.push_str(&format!(" {interval}"));
        }
    }
    text.push('.');
    if let Some(rung) = steps::rung_below(outcome, arm)
        && let Some(step) = steps::step(outcome, rung, arm, name)
    {
        let verdict = wording::verdict(step.verdict);
        text.push_str(&format!(" On top of {}: {}, {verdict}.", rung.name, step.text()));
    }
    (tone, text)
}

pub(super) fn reasons(outcome: &Outcome) -> Vec<Remark> {
    let mut remarks = Vec::new();
    // The errors of an arm all of whose trials failed are below "failed trials".
    let asked = outcome
        .arms
        .iter()
        .filter(|arm| arm.support.is_yes() && (arm.trials > 0 || arm.failures.is_empty()));
    for arm in asked {
        let mut reasons: Vec<(&String, Vec<String>)> = Vec::new();
        for name in &outcome.judged {
            let Some(why) = arm.metrics.get(name).and_then(|metric| metric.why.as_ref()) else {
                continue;
            };
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, labels)) => labels.push(wording::metric(name)),
                None => reasons.push((why, vec![wording::metric(name)])),
            }
        }
        remarks.extend(reasons.into_iter().map(|(why, labels)| {
            Remark::new(&arm.name, format!("{why} ({})", labels.join(", ")), Tone::Doubt)
        }));
    }
    remarks
}

pub(super) fn delivery(outcome: &Outcome) -> Vec<Remark> {
    outcome
        .arms
        .iter()
        .filter_map(|arm: &ArmOutcome| {
            Some(Remark::new(&arm.name, Delivered::by_arm(arm).text()?, Tone::Doubt))
        })
        .collect()
}

/// A count over all trials of an arm.
fn total(arm: &ArmOutcome, name: &str) -> u64 {
    if let Some(whole) = arm.counters.get(name) {
        return *whole;
    }
    let suffix = format!("_{name}");
    let mut directions = arm.counters.iter().filter(|(key, _)| key.ends_with(&suffix)).peekable();
    if directions.peek().is_some() {
        return model::total(directions.map(|(_, count)| *count));
    }
    let trials = arm.metrics.get(name).map(|metric| &metric.trials);
    trials.map_or(0, |t| t.iter().flatten().sum::<f64>().round() as u64)
}

/// Packets of all trials of one arm.
#[derive(Debug, Default, PartialEq, Eq)]
struct Delivered {
    sent_count: u64,
    lost_count: u64,
    duplicated_count: u64,
    reordered_count: u64,
}

impl Delivered {
    /// From the counters if they have it (`lost_count`, or by direction `forward_lost_count`), else
    /// from the metric of that name.
    fn by_arm(arm: &ArmOutcome) -> Self {
        Delivered {
            sent_count: total(arm, "sent_count"),
            lost_count: total(arm, "lost_count"),
            duplicated_count: total(arm, "duplicated_count"),
            reordered_count: total(arm, "reordered_count"),
        }
    }

    /// `None` if all packets arrived once and in order.
    fn text(&self) -> Option<String> {
        let parts: Vec<_> = [
            (self.lost_count, "lost"),
            (self.duplicated_count, "duplicated"),
            (self.reordered_count, "reordered"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", units::grouped_count(count)))
        .collect();
        if parts.is_empty() {
            return None;
        }
        let mut text = parts.join(", ");
        if self.sent_count > 0 {
            text.push_str(&format!(" of {} sent", units::grouped_count(self.sent_count)));
            if self.lost_count > 0 {
                let share = units::percent(self.lost_count as f64 / self.sent_count as f64);
                text.push_str(&format!(" ({share} lost)"));
            }
        }
        Some(text)
    }
}

pub(super) fn failures(outcome: &Outcome) -> Vec<Failures> {
    let mut by_last: Vec<(&String, Vec<&ArmOutcome>)> = Vec::new();
    for arm in &outcome.arms {
        let Some(last) = arm.failures.last() else { continue };
        match by_last.iter_mut().find(|(known, _)| *known == last) {
            Some((_, arms)) => arms.push(arm),
            None => by_last.push((last, vec![arm])),
        }
    }
    by_last
        .into_iter()
        .map(|(last, arms): (&String, Vec<&ArmOutcome>)| {
            let failed: usize = arms.iter().map(|arm| failed_count(arm)).sum();
            let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
            let mut errors: Vec<String> = Vec::new();
            for error in arms.iter().flat_map(|arm| &arm.failures) {
                if !errors.contains(error) {
                    errors.push(error.clone());
                }
            }
            let summary = match errors.len() {
                1 if failed > 1 => format!("{failed} failed alike: {last}"),
                _ => format!("{failed} failed, the last: {last}"),
            };
            Failures { arm: names.join(", "), summary, errors }
        })
        .collect()
}

/// Failed trials of an arm, whose list of errors may be shortened.
fn failed_count(arm: &ArmOutcome) -> usize {
    let counted = arm.reliability.as_ref().map_or(0, |reliability| reliability.failed as usize);
    counted.max(arm.failures.len())
}

/// A mode that all arms share is left out.
pub(super) fn modes(outcome: &Outcome) -> Vec<Remark> {
    let ran: Vec<_> = outcome.arms.iter().filter(|arm| !arm.mode.is_empty()).collect();
    let mut arms_by_mode: BTreeMap<(&String, &String), Vec<String>> = BTreeMap::new();
    for arm in &ran {
        // A version is in the tables.
        for mode in arm.mode.iter().filter(|(name, _)| *name != VERSION_MODE) {
            arms_by_mode.entry(mode).or_default().push(arm.name.clone());
        }
    }
    arms_by_mode
        .into_iter()
        .filter(|(_, arms)| arms.len() < ran.len())
        .map(|((name, mode), arms)| {
            Remark::new(format!("{name}: {mode}"), arms.join(", "), Tone::Plain)
        })
        .collect()
}

/// Arms that could not run or were not run on purpose: each reason once, with the arms that it holds for.
pub(super) fn not_run(outcome: &Outcome) -> Vec<Remark> {
    let mut arms_by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for arm in &outcome.arms {
        let reason = match &arm.support {
            Support::Yes => continue,
            Support::Unsupported { what, needs } => format!("{what}. To run it: {needs}"),
            Support::Refused { why } => format!("not run on purpose: {why}"),
        };
        match arms_by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, arms)) => arms.push(arm.name.clone()),
            None => arms_by_reason.push((reason, vec![arm.name.clone()])),
        }
    }
    arms_by_reason
        .into_iter()
        .map(|(reason, arms): (String, Vec<String>)| {
            Remark::new(arms.join(", "), reason, Tone::Doubt)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_largest_size_are_shown_as_large() {
        let delivered =
            Delivered { sent_count: u64::MAX, lost_count: u64::MAX, ..Default::default() };
        assert!(delivered.text().unwrap().starts_with("9,223,372,036,854,775,807 lost"));
    }

    #[test]
    fn complete_delivery_gives_no_remark() {
        assert_eq!(Delivered::default().text(), None);
        let delivered =
            Delivered { sent_count: 1000, lost_count: 40, duplicated_count: 0, reordered_count: 2 };
        assert_eq!(delivered.text().unwrap(), "40 lost, 2 reordered of 1,000 sent (4.00 % lost)");
    }
}
