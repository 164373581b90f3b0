//! Worth of one more switch: an arm against another of the same experiment that lacks it.

use model::{ArmKind, ArmOutcome, Floor, Outcome, Support, Verdict};

use crate::units;

/// Change from one arm to another, over the blocks that have both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Median of the blocks' ratios.
    pub(crate) ratio: f64,
    /// 95 % interval of `ratio`.
    pub(crate) interval: Floor,
    /// Judged like every arm, with the noise floor of the experiment.
    pub(crate) verdict: Verdict,
}

impl Step {
    /// `0.599× [0.583, 0.615]`.
    pub(crate) fn text(&self) -> String {
        let Floor { low, high } = self.interval;
        format!("{} {}", units::ratio(self.ratio), units::interval(low, high))
    }
}

/// Returns the change from one arm to another by one metric; `None` if fewer than six blocks have
/// both, because there is no interval then.
pub(crate) fn step(
    outcome: &Outcome,
    from: &ArmOutcome,
    to: &ArmOutcome,
    name: &str,
) -> Option<Step> {
    let (before, after) = (from.metrics.get(name)?, to.metrics.get(name)?);
    if !before.trials.iter().chain(&after.trials).flatten().all(|value| *value > 0.0) {
        return None;
    }
    let (comparison, verdict) = outcome.step(from, to, name)?;
    Some(Step { ratio: comparison.ratio, interval: comparison.interval?, verdict })
}

/// Returns the arm that ran with the most of this arm's switches and no others; never the baseline.
pub(crate) fn rung_below<'a>(outcome: &'a Outcome, arm: &ArmOutcome) -> Option<&'a ArmOutcome> {
    outcome
        .arms
        .iter()
        .filter(|other: &&ArmOutcome| {
            other.kind == ArmKind::Variant
                && other.trials > 0
                && !other.switches.is_empty()
                && other.switches.len() < arm.switches.len()
                && other.switches.iter().all(|switch| arm.switches.contains(switch))
        })
        .max_by_key(|other| other.switches.len())
}

/// Returns the switches of an arm that improved a metric when they were added, as far as the rungs
/// below it show, in the order of the arm.
pub(crate) fn helpful(outcome: &Outcome, arm: &ArmOutcome, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut upper = arm;
    while let Some(rung) = rung_below(outcome, upper) {
        if step(outcome, rung, upper, name).is_some_and(|step| step.verdict == Verdict::Better) {
            found.extend(upper.switches.iter().filter(|s| !rung.switches.contains(s)));
        }
        upper = rung;
    }
    if upper.metrics.get(name).and_then(|metric| metric.verdict) == Some(Verdict::Better) {
        found.extend(&upper.switches);
    }
    arm.switches.iter().filter(|switch| found.contains(switch)).cloned().collect()
}

/// Result of an experiment for one switch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Worth {
    /// Other switches that were on in both arms.
    pub(crate) beside: Vec<String>,
    /// Change by the switch; `None` if it could not run.
    pub(crate) step: Option<Step>,
    /// Also given for a switch that cannot run or had no effect.
    pub(crate) verdict: Verdict,
}

/// Returns the worth of a switch by one metric, from two arms (the baseline included) that differ in
/// this switch alone; of several such pairs, from the one with the fewest other switches.
pub(crate) fn worth(outcome: &Outcome, switch: &str, name: &str) -> Option<Worth> {
    let variants: Vec<&ArmOutcome> = outcome
        .arms
        .iter()
        .filter(|arm| {
            arm.kind == ArmKind::Variant && arm.switches.iter().any(|other| other == switch)
        })
        .collect();
    let judged = variants.iter().filter(|arm| arm.trials > 0);
    let judged = judged.filter_map(|arm| pair_worth(outcome, arm, switch, name));
    judged.min_by_key(|worth| worth.beside.len()).or_else(|| {
        let unsupported = variants.iter().find(|arm| {
            arm.switches.last().is_some_and(|last| last == switch)
                && matches!(arm.support, Support::Unsupported { .. })
        });
        unsupported.map(|_| Worth { beside: Vec::new(), step: None, verdict: Verdict::Unsupported })
    })
}

/// Worth of a switch by an arm that has it, and the one with its other switches.
fn pair_worth(outcome: &Outcome, with: &ArmOutcome, switch: &str, name: &str) -> Option<Worth> {
    let beside: Vec<String> =
        with.switches.iter().filter(|other| *other != switch).cloned().collect();
    let without = outcome
        .arms
        .iter()
        .filter(|arm| matches!(arm.kind, ArmKind::Variant | ArmKind::Baseline))
        .find(|arm| arm.trials > 0 && arm.switches == beside)?;
    let step = step(outcome, without, with, name)?;
    // "Not effective" is reported for the arm's last switch.
    let is_own = with.switches.last().is_some_and(|last| last == switch);
    let is_idle = with.metrics.get(name).and_then(|m| m.verdict) == Some(Verdict::NotEffective);
    let verdict = if is_own && is_idle { Verdict::NotEffective } else { step.verdict };
    Some(Worth { beside, step: Some(step), verdict })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Better, MetricOutcome};

    use super::*;

    fn arm(kind: ArmKind, name: &str, switches: &[&str], values: &[f64]) -> ArmOutcome {
        let trials = values.iter().map(|v| v.is_finite().then_some(*v)).collect();
        let median = values.iter().copied().find(|value| value.is_finite());
        let metric =
            MetricOutcome { median, ..MetricOutcome::unjudged("ns", Better::Lower, trials) };
        ArmOutcome {
            name: name.into(),
            kind,
            switches: switches.iter().map(|s| s.to_string()).collect(),
            support: Support::Yes,
            trials: values.len() as u32,
            metrics: BTreeMap::from([("m".into(), metric)]),
            latency: BTreeMap::new(),
            mode: BTreeMap::new(),
            counters: BTreeMap::new(),
            samples: None,
            reliability: None,
            failures: Vec::new(),
        }
    }

    /// Arms by their switches and their effect, on a machine that drifts.
    fn outcome(arms: &[(&[&str], f64)]) -> Outcome {
        let drifting: Vec<f64> = (1..=12).map(|at| 1_000.0 * f64::from(at) + 0.7).collect();
        let times = |factor: f64| drifting.iter().map(|v| v * factor).collect::<Vec<_>>();
        let mut all = vec![arm(ArmKind::Baseline, "baseline", &[], &drifting)];
        for (switches, factor) in arms {
            let name = switches.join("+");
            all.push(arm(ArmKind::Variant, &name, switches, &times(*factor)));
        }
        let json = serde_json::json!({
            "schema": model::SCHEMA, "id": "", "started": "", "version": "", "path": "", "load": {},
            "machine": model::Machine::default(), "seed": 0, "blocks": 12, "wall_ms": 0,
            "ended": "settled", "judged": ["m"], "arms": [], "warnings": [],
            "floor": { "m": { "low": 0.98, "high": 1.02 } },
        });
        let outcome: Outcome = serde_json::from_value(json).unwrap();
        Outcome { arms: all, ..outcome }
    }

    #[test]
    fn drift_cancels_and_a_failed_trial_is_the_worst() {
        let mut outcome = outcome(&[(&["a"], 1.0), (&["a", "b"], 0.5)]);
        outcome.arms[2].metrics.get_mut("m").unwrap().trials[3] = None;
        let step = step(&outcome, &outcome.arms[1], &outcome.arms[2], "m").unwrap();
        assert_eq!(step.verdict, Verdict::Better);
        assert!((step.ratio - 0.5).abs() < 1e-9, "{step:?}");
        assert!((step.interval.low - 0.5).abs() < 1e-9, "{step:?}");
    }

    #[test]
    fn fewer_than_six_blocks_give_no_step() {
        let mut outcome = outcome(&[(&["a"], 0.5)]);
        for arm in &mut outcome.arms {
            arm.metrics.get_mut("m").unwrap().trials.truncate(5);
        }
        outcome.blocks = 5;
        assert_eq!(step(&outcome, &outcome.arms[0], &outcome.arms[1], "m"), None);
    }

    #[test]
    fn worth_is_the_difference_to_the_arm_that_lacks_only_this_switch() {
        let ladder = outcome(&[(&["a"], 0.5), (&["a", "b"], 0.5), (&["a", "b", "c"], 0.25)]);
        let worth_of = |outcome: &Outcome, switch| {
            let worth = worth(outcome, switch, "m")?;
            Some((worth.verdict, worth.beside.join("+"), (worth.step?.ratio * 100.0).round()))
        };
        assert_eq!(worth_of(&ladder, "a"), Some((Verdict::Better, String::new(), 50.0)));
        assert_eq!(worth_of(&ladder, "b"), Some((Verdict::NoDifferenceShown, "a".into(), 100.0)));
        assert_eq!(worth_of(&ladder, "c"), Some((Verdict::Better, "a+b".into(), 50.0)));
        assert_eq!(worth_of(&ladder, "d"), None);
        // Leave-one-out pairs count too; the switch on its own comes first.
        let without = outcome(&[(&["a", "b"], 0.4), (&["b"], 0.8), (&["a"], 0.9)]);
        assert_eq!(worth_of(&without, "a"), Some((Verdict::Better, String::new(), 90.0)));
        let without = outcome(&[(&["a", "b", "c"], 0.4), (&["b", "c"], 0.8)]);
        assert_eq!(worth_of(&without, "a"), Some((Verdict::Better, "b+c".into(), 50.0)));
        assert_eq!(worth_of(&without, "b"), None, "no arm lacks it alone");
    }

    #[test]
    fn switch_without_effect_or_support_is_not_given_its_arm_s_figure() {
        let mut outcome = outcome(&[(&["a"], 0.5), (&["a", "b"], 0.25), (&["a", "b", "c"], 1.0)]);
        outcome.arms[2].metrics.get_mut("m").unwrap().verdict = Some(Verdict::NotEffective);
        outcome.arms[3].support = Support::unsupported("c", "another NIC");
        outcome.arms[3].trials = 0;
        assert_eq!(worth(&outcome, "b", "m").unwrap().verdict, Verdict::NotEffective);
        let unsupported = worth(&outcome, "c", "m").unwrap();
        assert_eq!((unsupported.verdict, unsupported.step), (Verdict::Unsupported, None));
    }

    #[test]
    fn only_switches_that_improved_when_added_are_helpful() {
        let mut outcome = outcome(&[(&["a"], 0.5), (&["a", "b"], 0.5), (&["a", "b", "c"], 0.25)]);
        outcome.arms[1].metrics.get_mut("m").unwrap().verdict = Some(Verdict::Better);
        let found = helpful(&outcome, &outcome.arms[3], "m");
        assert_eq!(found, ["a", "c"]);
    }
}
