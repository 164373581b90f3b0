//! Answers of a gate from the figures of a run.

use super::{Judged, Table};
use crate::decision::{self, GateQuestion, GateVerdict};
use crate::evidence::RunEvidence;
use crate::pairs::{Pairs, Scale};
use crate::{Better, By, Decision, Gate, GateAnswer, Undecided, Verdict};

fn moved(values: &[Option<f64>], step: f64, factor: f64) -> Vec<Option<f64>> {
    values.iter().map(|value| value.map(|value| (value + step) * factor)).collect()
}

fn unread_figures(why: &str) -> Undecided {
    Undecided::Unread { why: why.to_owned() }
}

impl Table<'_> {
    /// Answer of the gate that the plan asks for; `None` if it asks for none.
    pub(crate) fn gate(&self, judged: &Judged, seen: &RunEvidence) -> Option<Gate> {
        if !self.experiment.plan.gate {
            return None;
        }
        let (mut decisions, mut places) = (Vec::new(), Vec::new());
        let (mut questions, mut evidence) = (Vec::new(), Vec::new());
        for arm in (0..self.arms.len()).filter(|arm| self.is_gated(*arm)) {
            for name in &self.experiment.plan.judged {
                let mut decision = self.open_decision(judged, arm, name);
                match self.gate_question(arm, name) {
                    Ok(question) => {
                        places.push(decisions.len());
                        evidence.push(seen.gate(arm, name));
                        questions.push(question);
                    }
                    Err(reason) => decision.reason = Some(reason),
                }
                decisions.push(decision);
            }
        }
        let failing = (0..self.arms.len()).filter(|arm| judged.failures[*arm].is_some());
        let p: Vec<f64> = failing.map(|arm| seen.failures(arm)).collect();
        let answers = decision::decide(&questions, &evidence, &p);
        let blocks = self.experiment.blocks();
        let block_ms = self.experiment.mean_block_ns() as f64 / 1e6;
        for (place, found) in places.into_iter().zip(answers) {
            let GateVerdict { answer, reason, p, more_blocks } = found;
            let decision = &mut decisions[place];
            (decision.answer, decision.reason, decision.p) = (answer, reason, Some(p));
            decision.more_blocks = more_blocks;
            decision.more_ms = more_blocks.map(|more| (f64::from(more) * block_ms) as u64);
        }
        decisions.retain(|decision| self.counts_for_gate(decision));
        let carried_over = self.carried_over();
        for decision in &mut decisions {
            self.distrust(judged, &carried_over, decision, blocks);
        }
        for arm in (0..self.arms.len()).filter(|arm| self.is_gated(*arm)) {
            decisions.extend(self.failures_decision(judged, arm));
        }
        Some(Gate::new(self.experiment.plan.resolve, By::Value, decisions))
    }

    /// True of an answer on a figure that decides, and of a figure beside it that is shown to be worse.
    fn counts_for_gate(&self, decision: &Decision) -> bool {
        let deciding = &self.experiment.plan.deciding;
        let Some(name) = decision.metric.as_ref().filter(|_| !deciding.is_empty()) else {
            return true;
        };
        deciding.contains(name)
            || decision.answer == GateAnswer::Worse && !crate::metrics::is_cost(name)
    }

    /// Decision with the figures of an arm, still without an answer.
    fn open_decision(&self, judged: &Judged, arm: usize, name: &str) -> Decision {
        let outcome = self.outcome(judged, arm, name);
        let base = self.baseline.map(|arm| self.outcome(judged, arm, name));
        Decision {
            arm: self.arm(arm).name.clone(),
            base: self.base_name(),
            metric: Some(name.to_owned()),
            unit: outcome.unit,
            better: outcome.better,
            value: outcome.median,
            base_value: base.and_then(|base| base.median),
            ratio: outcome.ratio,
            low: outcome.low,
            high: outcome.high,
            difference: outcome.difference,
            failures: None,
            p: None,
            answer: GateAnswer::NotDecided,
            reason: None,
            more_blocks: None,
            more_ms: None,
        }
    }

    fn base_name(&self) -> String {
        self.baseline.map_or("baseline".into(), |arm| self.arm(arm).name.clone())
    }

    /// Takes back what the control or the end of the run does not allow.
    ///
    /// - `carried_over`: metrics that the trial before moves.
    fn distrust(
        &self,
        judged: &Judged,
        carried_over: &[String],
        decision: &mut Decision,
        blocks: u32,
    ) {
        let name = decision.metric.as_deref().unwrap_or_default();
        let control = self.control.and_then(|control| judged.verdict(control, name));
        let differs = control.is_some_and(Verdict::differs);
        let is_open = decision.answer != GateAnswer::Worse;
        let has_reason = matches!(
            decision.reason,
            Some(Undecided::Missing { .. } | Undecided::Unread { .. } | Undecided::NoControl)
        );
        let reason = match () {
            () if has_reason && blocks > 0 => return,
            () if differs => Undecided::Distrusted,
            () if carried_over.iter().any(|moved| moved == name) => Undecided::CarryOver,
            () if self.starts.is_one() => Undecided::OneStart,
            () if is_open && !self.experiment.is_complete() => Undecided::Interrupted,
            () => return,
        };
        decision.answer = GateAnswer::NotDecided;
        decision.reason = Some(reason);
        (decision.more_blocks, decision.more_ms) = (None, None);
    }

    /// Question of a gate. Errors: the reason why a figure cannot be decided.
    pub(super) fn gate_question(&self, arm: usize, name: &str) -> Result<GateQuestion, Undecided> {
        let threshold = self.experiment.plan.resolve;
        if let Some(why) = self.experiment.plan.arms[arm].1.reason() {
            return Err(Undecided::Missing { why });
        }
        let Some(series) = self.arms[arm].get(name) else {
            let trials = self.experiment.trials.iter().rev().filter(|trial| trial.arm == arm);
            let failure = trials.filter_map(|trial| trial.result.as_ref().err()).next();
            return Err(unread_figures(failure.map_or("no trial gave it", String::as_str)));
        };
        self.pairs(arm, name, series).map_err(|judgement| {
            unread_figures(judgement.why.as_deref().unwrap_or("the baseline gave none"))
        })?;
        let Some(control) = self.control_beside(arm, name) else {
            return Err(Undecided::NoControl);
        };
        let base = self.baseline.and_then(|arm| self.arms[arm].get(name));
        let base = base.map(|base| base.values.as_slice()).unwrap_or_default();
        let scale = self.scale(name).unwrap_or_default();
        let step = match scale {
            Scale::Count => 0.0,
            Scale::Ratio => decision::step_of(self.all_values(name)),
        };
        let better = series.better;
        // The arm as it would be without the allowed change.
        let factor = match better {
            Better::Lower => 1.0 / threshold,
            Better::Higher => threshold,
        };
        let pairs = |arm_step: f64, base_step: f64| {
            let pairs = Pairs::on(
                scale,
                &moved(&series.values, arm_step, factor),
                &moved(base, base_step, 1.0),
                Some(&moved(control, base_step, 1.0)),
                self.complete,
                better,
            );
            self.independent(name, pairs)
        };
        let (up, down) = (pairs(step, 0.0), pairs(0.0, step));
        let (at_worst, at_best) = match better {
            Better::Lower => (up, down),
            Better::Higher => (down, up),
        };
        let tail = self.tail(arm, name).and_then(|tail| tail.pooled);
        let has_worse_tail = tail.is_some_and(|of| of.low > threshold);
        Ok(GateQuestion { pairs: pairs(0.0, 0.0), at_worst, at_best, better, step, has_worse_tail })
    }

    /// Decision on the failed trials of an arm; `None` if neither it nor a baseline failed any.
    fn failures_decision(&self, judged: &Judged, arm: usize) -> Option<Decision> {
        let threshold = self.experiment.plan.resolve;
        let failures = judged.failures[arm].clone()?;
        let own = super::failed_share(failures.failed, failures.trials);
        let base = super::failed_share(failures.baseline_failed, failures.baseline_trials);
        let (answer, reason) = if failures.fails_more {
            (GateAnswer::Worse, None)
        } else if own - base > threshold - 1.0 + 1e-9 {
            (GateAnswer::NotDecided, Some(Undecided::Failures))
        } else {
            (GateAnswer::NoWorse, None)
        };
        Some(Decision {
            arm: self.arm(arm).name.clone(),
            base: self.base_name(),
            metric: None,
            unit: "share".into(),
            better: Better::Lower,
            value: Some(own),
            base_value: Some(base),
            ratio: None,
            low: None,
            high: None,
            difference: None,
            p: Some(failures.p_adjusted),
            failures: Some(failures),
            answer,
            reason,
            more_blocks: None,
            more_ms: None,
        })
    }
}
