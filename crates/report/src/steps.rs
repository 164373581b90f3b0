//! What one switch more is worth: an arm against another of the same experiment that lacks it.

use model::{ArmKind, ArmOutcome, Floor, Outcome, Support, Verdict};

use crate::units;

/// What an arm changes against another, over the blocks that have both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Median of the blocks' ratios.
    pub(crate) ratio: f64,
    /// Its 95 % interval.
    pub(crate) interval: Floor,
    /// By the rule of all verdicts, with the floor of the experiment.
    pub(crate) verdict: Verdict,
}

impl Step {
    /// `0.599× [0.583, 0.615]`.
    pub(crate) fn words(&self) -> String {
        let Floor { low, high } = self.interval;
        format!("{} [{}, {}]", units::ratio(self.ratio), units::digits(low), units::digits(high))
    }
}

/// From one arm to another by one metric; `None` under six blocks that have both, where there is
/// no interval.
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

/// The arm that ran with the most of this arm's switches and no other; the baseline is none.
pub(crate) fn rung_below<'a>(outcome: &'a Outcome, arm: &ArmOutcome) -> Option<&'a ArmOutcome> {
    let below = |other: &&ArmOutcome| {
        other.kind == ArmKind::Variant
            && other.trials > 0
            && !other.switches.is_empty()
            && other.switches.len() < arm.switches.len()
            && other.switches.iter().all(|switch| arm.switches.contains(switch))
    };
    outcome.arms.iter().filter(below).max_by_key(|other| other.switches.len())
}

/// Switches of an arm that were shown to improve a metric when they joined, as far as the rungs
/// below it tell; in the order of the arm.
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

/// What an experiment says of one switch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Worth {
    /// Switches that were on with it and without it.
    pub(crate) beside: Vec<String>,
    /// What it changed; `None` where it could not be told.
    pub(crate) step: Option<Step>,
    /// The verdict, of a switch that cannot run or did nothing, too.
    pub(crate) verdict: Verdict,
}

/// What an experiment says of a switch by one metric: from the two arms that differ in it alone, the
/// baseline among them; of several such pairs, the one with the fewest switches beside.
pub(crate) fn worth(outcome: &Outcome, switch: &str, name: &str) -> Option<Worth> {
    let ours = |arm: &&ArmOutcome| matches!(arm.kind, ArmKind::Variant | ArmKind::Baseline);
    let pair = |with: &&ArmOutcome| {
        let beside: Vec<String> =
            with.switches.iter().filter(|other| *other != switch).cloned().collect();
        let without = outcome
            .arms
            .iter()
            .filter(ours)
            .find(|arm| arm.trials > 0 && arm.switches == beside)?;
        let step = step(outcome, without, with, name)?;
        // What the arm's own switch is said to have done is said of the last one.
        let own = with.switches.last().is_some_and(|last| last == switch);
        let idle = with.metrics.get(name).and_then(|m| m.verdict) == Some(Verdict::NotEffective);
        let verdict = if own && idle { Verdict::NotEffective } else { step.verdict };
        Some(Worth { beside, step: Some(step), verdict })
    };
    let with = || {
        outcome.arms.iter().filter(|arm| {
            arm.kind == ArmKind::Variant && arm.switches.iter().any(|other| other == switch)
        })
    };
    let judged = with().filter(|arm| arm.trials > 0).filter_map(|arm| pair(&arm));
    judged.min_by_key(|worth| worth.beside.len()).or_else(|| {
        let barred = with().find(|arm| {
            arm.switches.last().is_some_and(|last| last == switch)
                && matches!(arm.support, Support::Unsupported { .. })
        });
        barred.map(|_| Worth { beside: Vec::new(), step: None, verdict: Verdict::Unsupported })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Better, MetricOutcome};

    use super::*;

    fn arm(kind: ArmKind, name: &str, switches: &[&str], values: &[f64]) -> ArmOutcome {
        let trials = values.iter().map(|v| v.is_finite().then_some(*v)).collect();
        let metric = MetricOutcome::unjudged("ns", Better::Lower, trials);
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
            failures: Vec::new(),
        }
    }

    /// Arms by their switches and what they do to a machine that drifts.
    fn outcome(arms: &[(&[&str], f64)]) -> Outcome {
        let drifting: Vec<f64> = (1..=12).map(f64::from).collect();
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
    fn a_drift_of_the_machine_cancels_and_missing_trials_are_left_out() {
        let mut outcome = outcome(&[(&["a"], 1.0), (&["a", "b"], 0.5)]);
        outcome.arms[2].metrics.get_mut("m").unwrap().trials[3] = None;
        let step = step(&outcome, &outcome.arms[1], &outcome.arms[2], "m").unwrap();
        assert_eq!(step.verdict, Verdict::Better);
        assert!((step.ratio - 0.5).abs() < 1e-9, "{step:?}");
        assert!((step.interval.low - 0.5).abs() < 1e-9, "{step:?}");
    }

    #[test]
    fn under_six_blocks_there_is_no_step() {
        let mut outcome = outcome(&[(&["a"], 0.5)]);
        for arm in &mut outcome.arms {
            arm.metrics.get_mut("m").unwrap().trials.truncate(5);
        }
        assert_eq!(step(&outcome, &outcome.arms[0], &outcome.arms[1], "m"), None);
    }

    #[test]
    fn a_switch_is_worth_the_difference_to_the_arm_that_lacks_it_alone() {
        let ladder = outcome(&[(&["a"], 0.5), (&["a", "b"], 0.5), (&["a", "b", "c"], 0.25)]);
        let said = |outcome: &Outcome, switch| {
            let worth = worth(outcome, switch, "m")?;
            Some((worth.verdict, worth.beside.join("+"), (worth.step?.ratio * 100.0).round()))
        };
        assert_eq!(said(&ladder, "a"), Some((Verdict::Better, String::new(), 50.0)));
        assert_eq!(said(&ladder, "b"), Some((Verdict::NoDifferenceShown, "a".into(), 100.0)));
        assert_eq!(said(&ladder, "c"), Some((Verdict::Better, "a+b".into(), 50.0)));
        assert_eq!(said(&ladder, "d"), None);
        // Left out: the same from above. Alone goes first where there are both.
        let without = outcome(&[(&["a", "b"], 0.4), (&["b"], 0.8), (&["a"], 0.9)]);
        assert_eq!(said(&without, "a"), Some((Verdict::Better, String::new(), 90.0)));
        let without = outcome(&[(&["a", "b", "c"], 0.4), (&["b", "c"], 0.8)]);
        assert_eq!(said(&without, "a"), Some((Verdict::Better, "b+c".into(), 50.0)));
        assert_eq!(said(&without, "b"), None, "no arm lacks it alone");
    }

    #[test]
    fn a_switch_that_did_nothing_or_cannot_run_is_not_given_the_figure_of_its_arm() {
        let mut outcome = outcome(&[(&["a"], 0.5), (&["a", "b"], 0.25), (&["a", "b", "c"], 1.0)]);
        outcome.arms[2].metrics.get_mut("m").unwrap().verdict = Some(Verdict::NotEffective);
        outcome.arms[3].support = Support::unsupported("c", "another NIC");
        outcome.arms[3].trials = 0;
        assert_eq!(worth(&outcome, "b", "m").unwrap().verdict, Verdict::NotEffective);
        let barred = worth(&outcome, "c", "m").unwrap();
        assert_eq!((barred.verdict, barred.step), (Verdict::Unsupported, None));
    }

    #[test]
    fn only_switches_that_gave_something_when_they_joined_are_said_to_help() {
        let mut outcome = outcome(&[(&["a"], 0.5), (&["a", "b"], 0.5), (&["a", "b", "c"], 0.25)]);
        outcome.arms[1].metrics.get_mut("m").unwrap().verdict = Some(Verdict::Better);
        let found = helpful(&outcome, &outcome.arms[3], "m");
        assert_eq!(found, ["a", "c"]);
    }
}
