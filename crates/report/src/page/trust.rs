//! Checks of a run's own assumptions, in words.

use model::{ArmOutcome, CarryOver, Outcome, Ticks, statistics};

use crate::answer::percent;
use crate::units;

/// Returns the checks of a metric beside its A/A floor: `after another arm 1.00× (p 0.60)`; `None` if none was made.
pub(super) fn checks(outcome: &Outcome, name: &str) -> Option<String> {
    let trust = &outcome.trust;
    let carry_over = trust.carry_over.iter().find(|check| check.metric == name);
    let parts = [
        carry_over.map(|check| trial_before(check, outcome.schedule.settle)),
        trust.ticks_of(name).map(|ticks| steps(ticks, outcome, name)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Returns how far the figures can be trusted, in one line: `24 blocks of 13 arms in 88 s; noise floor 1.3 %; finds 1.2 %
/// in 19 of 20 runs; the trial before has no effect (p 0.61)`.
pub(super) fn line(outcome: &Outcome) -> String {
    let arms = outcome.arms.iter().filter(|arm| arm.trials > 0).count() as u32;
    let extent = format!(
        "{} of {} in {}",
        units::plural(outcome.blocks, "block"),
        units::plural(arms, "arm"),
        units::duration_ms(outcome.wall_ms)
    );
    let Some(name) = outcome.judged.first() else { return extent };
    let floor = match outcome.floor.get(name) {
        Some(floor) => {
            let reach = (1.0 - floor.low).abs().max((floor.high - 1.0).abs());
            format!("noise floor {}", percent(reach))
        }
        None => "noise floor not known".to_owned(),
    };
    let finds = super::metric::finds(outcome, name);
    let finds = finds.map(|finds| format!("finds {finds} in 19 of 20 runs"));
    let carry_over = outcome.trust.carry_over.iter().find(|check| check.metric == *name);
    let carry_over = carry_over.map(|check| brief_trial_before(check, outcome.schedule.settle));
    let ticks = outcome.trust.ticks_of(name).map(|ticks| steps(ticks, outcome, name));
    let starts = super::starts(&outcome.trust.starts, outcome.blocks);
    let wire = super::wire::line(outcome);
    let parts = [Some(extent), Some(floor), finds, carry_over, ticks, starts, wire];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn brief_trial_before(check: &CarryOver, settles: bool) -> String {
    let is_checked = check.blocks as usize >= statistics::STRICT_PAIRS_MIN;
    match (settles, is_checked, check.flagged) {
        (true, ..) => "each trial after one of its own arm".to_owned(),
        (false, false, _) => "effect of the trial before not checked".to_owned(),
        (false, true, true) => format!("the trial before moves it (p {})", units::p(check.p)),
        (false, true, false) => format!("no effect of the trial before (p {})", units::p(check.p)),
    }
}

/// Reason why a metric is not to be trusted, if there is one.
pub(super) fn distrust(outcome: &Outcome, name: &str) -> Option<&'static str> {
    if outcome.differing().contains(&name) {
        Some("not to be trusted: the baseline differs from itself")
    } else if outcome.trust.carried_over().contains(&name) {
        Some("not to be trusted: the trial before moves it")
    } else {
        None
    }
}

/// The baseline after another arm, over the baseline after itself.
fn trial_before(check: &CarryOver, settles: bool) -> String {
    if settles {
        return "each trial after one of its own arm".into();
    }
    let needed = statistics::STRICT_PAIRS_MIN;
    if (check.blocks as usize) < needed {
        return format!("trial before not checked ({} of {needed} blocks)", check.blocks);
    }
    let after = check.after.as_deref().unwrap_or("another arm");
    let p = units::p(check.p);
    match check.ratio {
        Some(ratio) => format!("after {after} {} (p {p})", units::ratio(ratio)),
        None => format!("after {after}: p {p}"),
    }
}

fn steps(ticks: &Ticks, outcome: &Outcome, name: &str) -> String {
    let unit = super::shape(outcome, name).map_or("", |shape| shape.unit.as_str());
    format!(
        "figures in steps of {}, {} of the baseline",
        units::value(ticks.step, unit),
        units::percent(ticks.share)
    )
}

/// Returns a note on a p-value that cannot be smaller: `0.002 is the smallest p that 15 blocks can give`; `None` if no
/// verdict has it.
pub(super) fn smallest_p(outcome: &Outcome) -> Option<String> {
    // Of the signed-rank test; with more blocks it is approximated, and too small to be shown.
    let blocks = outcome.blocks;
    let smallest = 2f64.powi(1 - i32::try_from(blocks).ok()?);
    let shown = outcome
        .arms
        .iter()
        .filter_map(|arm: &ArmOutcome| {
            let metrics = outcome.judged.iter().filter_map(|name| arm.metrics.get(name)).cloned();
            let least = metrics.filter(|metric| metric.p.is_some_and(|p| p <= smallest * 1.001));
            least.filter_map(|metric| metric.p_adjusted).reduce(f64::min)
        })
        .reduce(f64::min)?;
    // A smaller one is shown as `<0.001` alike.
    (shown >= 0.001).then(|| {
        format!(
            "{} is the smallest p that {} can give here",
            units::p(shown),
            units::plural(blocks, "block")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(blocks: u32, after: Option<&str>, ratio: Option<f64>) -> CarryOver {
        let metric = "m".to_owned();
        CarryOver { metric, after: after.map(str::to_owned), blocks, ratio, p: 0.6, flagged: false }
    }

    #[test]
    fn effect_of_the_trial_before_is_said_with_its_cause() {
        assert_eq!(
            trial_before(&check(12, None, Some(1.0)), false),
            "after another arm 1.00× (p 0.60)"
        );
        assert_eq!(
            trial_before(&check(12, Some("b"), Some(1.05)), false),
            "after b 1.05× (p 0.60)"
        );
        assert_eq!(trial_before(&check(12, None, None), false), "after another arm: p 0.60");
        let few = "trial before not checked (5 of 8 blocks)";
        assert_eq!(trial_before(&check(5, None, Some(1.0)), false), few);
        let settled = trial_before(&check(0, None, None), true);
        assert_eq!(settled, "each trial after one of its own arm");
    }
}
