//! The gate of a comparison between runs.

use super::{Change, CountChange, MetricComparison, RunComparison, runs};
use crate::gate::EARLIER;
use crate::verdict::Badness;
use crate::{
    ArmComparison, ArmKind, Better, By, Decision, Gate, GateAnswer, Undecided, Unit, Verdict,
};

impl RunComparison {
    /// Answers whether the newer runs are worse, or worth less, by more than a ratio of at least 1.
    pub fn decide(&self, by: By, threshold: f64) -> Gate {
        let questions = self.questions(by);
        // A baseline is worth nothing against itself, and counts have no worth: their baseline may have none.
        let asked = self.values().filter(|(arm, _, metric)| {
            by == By::Value || (arm.kind != ArmKind::Baseline && metric.difference.is_none())
        });
        let mut decisions: Vec<Decision> = asked
            .map(|(arm, name, metric)| {
                let mut decision = open(arm, name, metric, by);
                let moved = self.moved_baselines(threshold).contains(&name);
                let answer = answer(metric, by, threshold, (self.unit, questions));
                (decision.answer, decision.reason) = match answer {
                    // A baseline that is worse itself may be a slower machine.
                    (GateAnswer::Worse, _) if by == By::Value && moved => {
                        (GateAnswer::NotDecided, Some(Undecided::BaselineMoved))
                    }
                    answer => answer,
                };
                decision
            })
            .collect();
        let runs = self.old_runs.iter().chain(&self.new_runs);
        if runs.into_iter().any(|run| !run.ended.is_complete()) {
            for decision in &mut decisions {
                decision.answer = GateAnswer::NotDecided;
                decision.reason = Some(Undecided::Interrupted);
            }
        }
        decisions.extend(self.only_old.iter().map(|arm| missing(arm)));
        Gate::new(threshold, by, decisions)
    }
}

fn open(arm: &ArmComparison, name: &str, metric: &MetricComparison, by: By) -> Decision {
    let change = metric.change(by);
    Decision {
        arm: arm.name.clone(),
        base: EARLIER.into(),
        metric: Some(name.to_owned()),
        unit: metric.unit.clone(),
        better: metric.better,
        value: metric.new.filter(|_| by == By::Value),
        base_value: metric.old.filter(|_| by == By::Value),
        ratio: change.map(|change| change.ratio),
        low: change.and_then(|change| change.low),
        high: change.and_then(|change| change.high),
        difference: metric.difference.as_ref().map(|change| change.difference),
        failures: None,
        p: change.and_then(|change| change.p_adjusted),
        answer: GateAnswer::NotDecided,
        reason: None,
        more_blocks: None,
        more_ms: None,
    }
}

/// Decision on an arm that the newer runs do not have.
fn missing(arm: &str) -> Decision {
    Decision {
        arm: arm.to_owned(),
        base: EARLIER.into(),
        metric: None,
        unit: String::new(),
        better: Better::Lower,
        value: None,
        base_value: None,
        ratio: None,
        low: None,
        high: None,
        difference: None,
        failures: None,
        p: None,
        answer: GateAnswer::NotDecided,
        reason: Some(Undecided::Missing { why: "only the older runs have this arm".into() }),
        more_blocks: None,
        more_ms: None,
    }
}

fn answer(
    metric: &MetricComparison,
    by: By,
    threshold: f64,
    (unit, questions): (Unit, usize),
) -> (GateAnswer, Option<Undecided>) {
    let few = |old, new| (GateAnswer::NotDecided, Some(few_units(unit, questions, old, new)));
    let can_decide = |old, new| runs::can_decide(old, new, questions);
    match (metric.change(by), &metric.difference) {
        (Some(change), _) if !can_decide(change.old_count, change.new_count) => {
            few(change.old_count, change.new_count)
        }
        (Some(change), _) => of_change(change, metric.better, threshold),
        (None, Some(counts)) if !can_decide(counts.old_count, counts.new_count) => {
            few(counts.old_count, counts.new_count)
        }
        (None, Some(counts)) => of_counts(counts, metric.better, threshold),
        (None, None) => {
            let why = metric.why.clone().unwrap_or_else(|| "no run gave it".into());
            (GateAnswer::NotDecided, Some(Undecided::Unread { why }))
        }
    }
}

fn few_units(unit: Unit, questions: usize, old: usize, new: usize) -> Undecided {
    let needed = runs::runs_needed(questions) as u32;
    match unit {
        Unit::Run => Undecided::FewRuns { needed },
        Unit::Session | Unit::Day => {
            Undecided::FewSessions { unit, old: old as u32, new: new as u32, needed }
        }
    }
}

fn of_change(change: &Change, better: Better, threshold: f64) -> (GateAnswer, Option<Undecided>) {
    let Some((low, high)) = change.low.zip(change.high) else { return wide() };
    let interval = Badness::of((low.ln(), high.ln()), better);
    decided(interval, threshold.ln(), change.verdict)
}

fn of_counts(
    counts: &CountChange,
    better: Better,
    threshold: f64,
) -> (GateAnswer, Option<Undecided>) {
    let Some(interval) = counts.difference.low.zip(counts.difference.high) else { return wide() };
    let allowed = (threshold - 1.0) * counts.old_mean;
    decided(Badness::of(interval, better), allowed, counts.verdict)
}

fn decided(interval: Badness, allowed: f64, verdict: Verdict) -> (GateAnswer, Option<Undecided>) {
    // The small term absorbs rounding.
    if interval.most <= allowed + 1e-12 {
        return (GateAnswer::NoWorse, None);
    }
    if interval.least > allowed && verdict == Verdict::Worse {
        return (GateAnswer::Worse, None);
    }
    wide()
}

fn wide() -> (GateAnswer, Option<Undecided>) {
    (GateAnswer::NotDecided, Some(Undecided::Wide))
}
