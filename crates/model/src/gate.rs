//! Answer of a gate on a run, with its decisions.

use std::iter;

use serde::{Deserialize, Serialize};

use crate::statistics::LEVEL;
use crate::{Better, By, CountDifference, Reliability, Unit};

/// Name of the older runs in a decision.
pub(crate) const EARLIER: &str = "earlier";

/// Answer of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum GateAnswer {
    /// Shown to be no worse than the threshold.
    NoWorse,
    /// Shown to be worse by more than the threshold.
    Worse,
    /// Neither.
    NotDecided,
}

/// Reason why a figure is not decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Undecided {
    /// The interval reaches beyond the threshold, and not only there.
    Wide,
    /// Too few blocks for an interval and for a judgement of the control.
    FewBlocks {
        /// Blocks that have the figure.
        blocks: u32,
        /// Fewest blocks.
        needed: u32,
    },
    /// Too few runs a side for a verdict.
    FewRuns {
        /// Fewest runs a side.
        needed: u32,
    },
    /// Too few sessions or days a side: the day cannot be told from the change.
    FewSessions {
        /// Session or day.
        unit: Unit,
        /// Older ones that have the figure.
        old: u32,
        /// Newer ones that have the figure.
        new: u32,
        /// Fewest a side.
        needed: u32,
    },
    /// Too few sessions for a change to be found.
    FewPoints {
        /// Run, session or day.
        unit: Unit,
        /// Those that have the figure.
        sessions: u32,
        /// Fewest.
        needed: u32,
    },
    /// Clear of the threshold, but not after the correction for the number of figures.
    Corrected {
        /// Figures that are judged together.
        figures: u32,
    },
    /// The program's figures come in steps that are too coarse for the threshold.
    Resolution {
        /// Step, in the unit of the figure.
        step: f64,
    },
    /// No worse in the typical trial, but in the tail of all trials together.
    Tail,
    /// The arm failed in a share of trials that is higher by more than the threshold, which is not shown.
    Failures,
    /// There is no figure.
    Unread {
        /// Reason.
        why: String,
    },
    /// The arm did not run.
    Missing {
        /// Reason.
        why: String,
    },
    /// The baseline differs from itself, so the figure cannot be trusted.
    Distrusted,
    /// The programs were started once in the run, so a difference between starts cannot be told from one of the arm.
    OneStart,
    /// The trial before moves the figure, so it cannot be trusted.
    CarryOver,
    /// The second baseline gave no figure, so nothing shows the noise.
    NoControl,
    /// The run did not reach its planned end.
    Interrupted,
    /// The baseline itself changed between the runs.
    BaselineMoved,
    /// Not decided in some runs of a series.
    Runs {
        /// Runs in which it is not decided.
        undecided: u32,
        /// All runs.
        of: u32,
    },
}

/// Answer of a gate on one figure of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decision {
    /// The arm.
    pub arm: String,
    /// Name of what it is compared with.
    pub base: String,
    /// The figure; `None` for the share of failed trials.
    pub metric: Option<String>,
    /// Unit of `value`.
    pub unit: String,
    /// Direction of improvement.
    pub better: Better,
    /// Median of the arm.
    pub value: Option<f64>,
    /// Median of what it is compared with.
    pub base_value: Option<f64>,
    /// Arm over base; `None` if it is not known or infinite.
    pub ratio: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: Option<f64>,
    /// Upper end; `None` beside a `low` if it is infinite.
    pub high: Option<f64>,
    /// Of counts, in place of the ratio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<CountDifference>,
    /// Failed trials, if `metric` is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<Reliability>,
    /// Two-sided p-value of a change by exactly the threshold, corrected for all figures of the run; of a comparison
    /// between runs, of no change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Answer.
    pub answer: GateAnswer,
    /// Reason, if it is not decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Undecided>,
    /// Blocks that would probably decide, in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_blocks: Option<u32>,
    /// Time that these would take, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_ms: Option<u64>,
}

impl Decision {
    /// True for another decision on the same figure of the same arm.
    fn is_on_same(&self, other: &Decision) -> bool {
        self.arm == other.arm && self.metric == other.metric
    }
}

/// Answer of a gate on a whole run, a series of runs, or a comparison of two series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gate {
    /// Ratio from which on a difference counts, at least 1; of counts, over the baselines' mean.
    pub threshold: f64,
    /// Quantity that was asked for.
    pub by: By,
    /// Worse if any decision is, no worse if all are, else not decided.
    pub answer: GateAnswer,
    /// One for each judged figure of each arm, and one for failed trials where there are any.
    pub decisions: Vec<Decision>,
}

impl Gate {
    pub(crate) fn new(threshold: f64, by: By, decisions: Vec<Decision>) -> Self {
        let is = |answer| move |decision: &Decision| decision.answer == answer;
        let answer = if decisions.iter().any(is(GateAnswer::Worse)) {
            GateAnswer::Worse
        } else if !decisions.is_empty() && decisions.iter().all(is(GateAnswer::NoWorse)) {
            GateAnswer::NoWorse
        } else {
            GateAnswer::NotDecided
        };
        Gate { threshold, by, answer, decisions }
    }

    /// Answer on a series of runs of one experiment, as one family: a figure is worse if it is in a run after the
    /// correction for the number of runs, and no worse if it is in all of them. `None` without a run.
    pub fn of_runs(runs: &[&Gate]) -> Option<Gate> {
        let last = *runs.last()?;
        let count = runs.len();
        let mut decisions: Vec<Decision> = Vec::new();
        // Failed trials have a decision only in the runs that have any.
        for wanted in iter::once(&last).chain(runs).flat_map(|run| &run.decisions) {
            if decisions.iter().any(|known| known.is_on_same(wanted)) {
                continue;
            }
            let found: Vec<&Decision> = runs
                .iter()
                .filter_map(|run| run.decisions.iter().find(|one| one.is_on_same(wanted)))
                .collect();
            decisions.push(of_runs(&found, count));
        }
        Some(Gate::new(last.threshold, last.by, decisions))
    }

    /// True if every figure of an arm is decided.
    pub(crate) fn is_arm_decided(&self, arm: &str) -> bool {
        let mut decisions = self.decisions.iter().filter(|decision| decision.arm == arm);
        decisions.all(|decision| decision.answer != GateAnswer::NotDecided)
    }

    /// Returns the decision on a figure of an arm.
    pub fn decision(&self, arm: &str, metric: &str) -> Option<&Decision> {
        self.decisions.iter().find(|d| d.arm == arm && d.metric.as_deref() == Some(metric))
    }
}

/// Decisions of several runs on the same figure as one; that of the run that decided, else the last.
fn of_runs(found: &[&Decision], runs: usize) -> Decision {
    let p = |decision: &&&Decision| decision.p.unwrap_or(1.0);
    let worse = found.iter().filter(|decision| decision.answer == GateAnswer::Worse);
    if let Some(worse) = worse.min_by(|a, b| p(a).total_cmp(&p(b))) {
        let p = (worse.p.unwrap_or(0.0) * runs as f64).min(1.0);
        let decision = Decision { p: Some(p), ..(*worse).clone() };
        if p < 1.0 - LEVEL {
            return decision;
        }
        let reason = Some(Undecided::Corrected { figures: runs as u32 });
        return Decision { answer: GateAnswer::NotDecided, reason, ..decision };
    }
    let open = |decision: &&&Decision| decision.answer == GateAnswer::NotDecided;
    let undecided = found.iter().filter(open).count();
    match found.iter().rev().find(open) {
        Some(one) if runs > 1 && undecided < found.len() => {
            let reason = Undecided::Runs { undecided: undecided as u32, of: runs as u32 };
            Decision { reason: Some(reason), ..(*one).clone() }
        }
        Some(one) => (*one).clone(),
        None => found[found.len() - 1].clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(answer: GateAnswer, p: f64) -> Decision {
        Decision {
            arm: "new".into(),
            base: "old".into(),
            metric: Some("p99_ms".into()),
            unit: "ms".into(),
            better: Better::Lower,
            value: None,
            base_value: None,
            ratio: None,
            low: None,
            high: None,
            difference: None,
            failures: None,
            p: Some(p),
            answer,
            reason: None,
            more_blocks: None,
            more_ms: None,
        }
    }

    fn gate(answer: GateAnswer, p: f64) -> Gate {
        Gate::new(1.05, By::Value, vec![decision(answer, p)])
    }

    fn gate_answer(answers: &[GateAnswer]) -> GateAnswer {
        let decisions = answers.iter().map(|answer| decision(*answer, 0.5)).collect();
        Gate::new(1.05, By::Value, decisions).answer
    }

    #[test]
    fn one_worse_figure_fails_a_gate_and_only_all_of_them_pass_it() {
        use GateAnswer::{NoWorse, NotDecided, Worse};
        assert_eq!(gate_answer(&[NoWorse, NoWorse]), NoWorse);
        assert_eq!(gate_answer(&[NoWorse, NotDecided]), NotDecided);
        assert_eq!(gate_answer(&[NotDecided, Worse, NoWorse]), Worse);
        assert_eq!(gate_answer(&[]), NotDecided, "a gate without a figure");
    }

    #[test]
    fn failed_trials_of_a_run_in_the_middle_fail_a_series() {
        let failures = [Some((GateAnswer::NoWorse, 1.0)), Some((GateAnswer::Worse, 0.001)), None];
        let runs = failures.map(|failures| {
            let failures =
                failures.map(|(answer, p)| Decision { metric: None, ..decision(answer, p) });
            let decisions = [decision(GateAnswer::NoWorse, 1.0)].into_iter().chain(failures);
            Gate::new(1.05, By::Value, decisions.collect())
        });
        let pooled = Gate::of_runs(&runs.each_ref()).unwrap();
        assert_eq!((pooled.answer, pooled.decisions.len()), (GateAnswer::Worse, 2));
    }

    #[test]
    fn series_of_runs_is_one_family() {
        use GateAnswer::{NoWorse, NotDecided, Worse};
        let pooled = |gates: &[Gate]| Gate::of_runs(&gates.iter().collect::<Vec<_>>()).unwrap();
        let (passed, open) = (gate(NoWorse, 1.0), gate(NotDecided, 0.5));
        assert!(Gate::of_runs(&[]).is_none());
        assert_eq!(pooled(&[passed.clone(), passed.clone()]).answer, NoWorse);
        let some = pooled(&[passed.clone(), open.clone()]);
        let reason = Some(Undecided::Runs { undecided: 1, of: 2 });
        assert_eq!((some.answer, &some.decisions[0].reason), (NotDecided, &reason));
        // One of ten runs, by chance.
        let mut ten = vec![passed; 9];
        ten.push(gate(Worse, 0.03));
        assert_eq!(pooled(&ten).answer, NotDecided);
        ten[9] = gate(Worse, 0.001);
        assert_eq!(pooled(&ten).answer, Worse);
    }
}
