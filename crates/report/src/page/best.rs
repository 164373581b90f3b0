//! The arm to take, and what a search says of its switches.

use model::{ArmOutcome, MetricOutcome, Outcome, Search, Verdict};

use super::Remark;
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
