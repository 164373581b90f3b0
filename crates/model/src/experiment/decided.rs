//! Looks of a run at its own figures, and the arms that they decide.

use super::Experiment;
use crate::Look;
use crate::evidence::RunEvidence;
use crate::judge::{Judged, Table};
use crate::{Arm, ArmKind, Ended, SwitchSet, Verdict, carry_over};

/// Ratio beyond which an effect is not that of the trial before: a third of what such a trial leaves reaches the arm.
const LARGE: f64 = 1.20;

/// False of a figure that more blocks may decide, and of one without a verdict.
fn is_answer(verdict: Option<Verdict>) -> bool {
    !matches!(verdict, None | Some(Verdict::Inconclusive | Verdict::Exploratory))
}

fn lacks_one(arm: &Arm, members: &SwitchSet) -> bool {
    arm.kind != ArmKind::Control
        && arm.switches.len() + 1 == members.len()
        && arm.switches.iter().all(|switch| members.contains(switch))
}

impl Experiment {
    /// Looks at the figures; arms that are decided do not run again. Returns true if no arm is open.
    ///
    /// A control that differs from the baseline invalidates all verdicts, and more blocks are the remedy: no arm is decided then.
    pub(super) fn is_settled_by(&mut self, look: Look) -> bool {
        self.looking = true;
        let mut seen = std::mem::take(&mut self.seen);
        let table = Table::new(self);
        table.look(&mut seen, look);
        let decided = self.decided_by(&table, &seen);
        (self.seen, self.looking) = (seen, false);
        for arm in decided {
            self.decided[arm] = Some(look.blocks);
        }
        let has_decided = self.decided.iter().any(Option::is_some);
        has_decided
            && (0..self.plan.arms.len()).all(|arm| !self.can_be_judged(arm) || !self.runs(arm))
    }

    /// Running arms that the evidence decides.
    fn decided_by(&self, table: &Table, seen: &RunEvidence) -> Vec<usize> {
        let mut judged_names = self.plan.judged.iter();
        if !judged_names.any(|name| table.arms.iter().any(|arm| arm.contains_key(name.as_str()))) {
            // A misspelt metric must not pass for a settled one.
            return Vec::new();
        }
        let judged = table.judge(seen);
        let control = self.place(ArmKind::Control);
        if self.plan.judged.iter().any(|name| {
            control.and_then(|arm| judged.verdict(arm, name)).is_some_and(Verdict::differs)
        }) {
            return Vec::new();
        }
        let gate = table.gate(&judged, seen);
        let set = self.set_arm();
        let has_open_rest = set.is_some_and(|set| {
            let mut rests = self.rests(set).filter(|rest| self.runs(*rest));
            rests.any(|rest| !table.is_member_decided(seen, rest))
        });
        let running = (0..self.plan.arms.len()).filter(|&arm| self.runs(arm)).count();
        let must_wait = carry_over::lacks_blocks(self, running);
        let is_decided = |arm: usize| {
            if must_wait && !self.has_large_effects(table, &judged, arm) {
                return false;
            }
            if let Some(gate) = &gate {
                let deciding = &self.plan.deciding;
                return gate.is_arm_decided(&self.plan.arms[arm].0.name)
                    && deciding.iter().all(|name| is_answer(judged.verdict(arm, name)));
            }
            if set.is_some_and(|set| self.rests(set).any(|rest| rest == arm)) {
                return table.is_member_decided(seen, arm);
            }
            // A set is compared with each set that lacks a member.
            (Some(arm) != set || !has_open_rest) && self.has_answers(table, &judged, arm)
        };
        let running =
            (0..self.plan.arms.len()).filter(|&arm| self.can_be_judged(arm) && self.runs(arm));
        running.filter(|&arm| is_decided(arm)).collect()
    }

    /// True if every judged figure of an arm is beyond what the trial before may leave.
    fn has_large_effects(&self, table: &Table, judged: &Judged, arm: usize) -> bool {
        self.plan.judged.iter().all(|name| {
            let ratio = table.outcome(judged, arm, name).ratio;
            ratio.is_some_and(|ratio| ratio.ln().abs() > LARGE.ln())
        })
    }

    /// True if every figure that an arm gave is answered.
    fn has_answers(&self, table: &Table, judged: &Judged, arm: usize) -> bool {
        // A figure that was given and not judged is open.
        self.plan.judged.iter().all(|name| match judged.verdict(arm, name) {
            None => !table.arms[arm].contains_key(name.as_str()),
            verdict => is_answer(verdict),
        })
    }

    /// The arm whose members are to be decided.
    pub(crate) fn set_arm(&self) -> Option<usize> {
        let set = self.plan.members.as_ref()?.set.as_str();
        self.plan.arms.iter().position(|(arm, _)| arm.name == set)
    }

    /// Arms that lack one member of the set, which may be the baseline.
    pub(crate) fn rests(&self, set: usize) -> impl Iterator<Item = usize> {
        let members = &self.plan.arms[set].0.switches;
        let arms = self.plan.arms.iter().enumerate();
        arms.filter(move |(_, (arm, _))| lacks_one(arm, members)).map(|(at, _)| at)
    }

    /// Evidence of all looks, that of the planned end included.
    pub(crate) fn evidence(&self, table: &Table) -> RunEvidence {
        let mut seen = self.seen.clone();
        let has_time_ended = matches!(self.ended, Some(Ended::TimeUp | Ended::BlockLimit));
        // A user who saw the first end of a run chose to have another.
        if has_time_ended && !self.resumed && self.blocks() > 0 {
            let look = Look::at_end(self.blocks(), seen.looks.len());
            table.look(&mut seen, look);
        }
        seen
    }
}
