//! Looks at the figures of a run: evidence on each question that is open, members of a set included.

use super::Table;
use crate::Look;
use crate::evidence::RunEvidence;
use crate::pairs::{Pairs, Scale};
use crate::verdict::{self, Question};

impl<'a> Table<'a> {
    /// Adds the evidence of a look on every question that is open.
    pub(crate) fn look(&self, seen: &mut RunEvidence, look: Look) {
        seen.looks.push(look);
        let resolve = self.experiment.plan.resolve;
        for arm in (0..self.arms.len()).filter(|arm| self.experiment.is_open(*arm)) {
            for name in &self.experiment.plan.judged {
                let Some(series) = self.arms[arm].get(name.as_str()) else { continue };
                let Ok(pairs) = self.pairs(arm, name, series) else { continue };
                if self.is_question(arm, name) {
                    let question = self.question(name, pairs, series.better);
                    seen.verdict_mut(arm, name).look(&question, look.weight, resolve);
                }
                if self.is_gated(arm)
                    && let Ok(question) = self.gate_question(arm, name)
                {
                    seen.gate_mut(arm, name).look(&question, look.weight);
                }
            }
            if let Some(failing) = self.failing(arm) {
                seen.look_at_failures(arm, failing.p, look.weight);
            }
        }
        if let Some((set, name)) = self.set() {
            for rest in self.experiment.rests(set).filter(|arm| self.experiment.is_open(*arm)) {
                if let Some(question) = self.member(set, rest, name) {
                    seen.member_mut(rest).look(&question, look.weight, resolve);
                }
            }
        }
    }

    /// The arm whose members are to be decided, and the metric.
    fn set(&self) -> Option<(usize, &'a str)> {
        let set = self.experiment.set_arm()?;
        Some((set, self.experiment.plan.members.as_ref()?.metric.as_str()))
    }

    /// The set against the set without one member; `None` without a figure of both.
    fn member(&self, set: usize, rest: usize, name: &str) -> Option<Question> {
        let (all, rest_of) = (self.arms[set].get(name)?, self.arms[rest].get(name)?);
        if self.scale(name) != Some(Scale::Ratio) {
            return None;
        }
        let pairs = Pairs::new(&all.values, &rest_of.values, None, self.complete, all.better);
        Some(self.question(name, pairs, all.better))
    }

    /// True if a member of the set is decided: the set is better, worse or equal without it.
    pub(crate) fn is_member_decided(&self, seen: &RunEvidence, rest: usize) -> bool {
        let question = self.set().and_then(|(set, name)| self.member(set, rest, name));
        question.is_some_and(|question| {
            let family = self.questions();
            let verdict =
                verdict::answer_one_of(&question, &seen.member(rest), family, true).verdict;
            verdict.differs() || verdict == stats::Verdict::NoDifferenceShown
        })
    }
}
