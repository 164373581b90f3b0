//! One arm of a run against another, from the outcome of the run.

use crate::decision::step_of;
use crate::pairs::Pairs;
use crate::statistics::{self, Comparison};
use crate::verdict::{self, Evidence, Question};
use crate::{ArmOutcome, Ended, Look, Outcome, Verdict};

impl Outcome {
    /// Compares one arm with another by one metric; `None` if an arm has no figure or never ran, or no
    /// block has both. The verdict is corrected for as many comparisons as the run has judged verdicts.
    pub fn step(
        &self,
        from: &ArmOutcome,
        to: &ArmOutcome,
        metric: &str,
    ) -> Option<(Comparison, Verdict)> {
        if from.trials == 0 || to.trials == 0 {
            return None;
        }
        let (from, to) = (from.metrics.get(metric)?, to.metrics.get(metric)?);
        let is_count = from.difference.or(to.difference).is_some();
        if is_count || from.median.is_none() || to.median.is_none() {
            return None;
        }
        let blocks = (self.blocks as usize).min(from.trials.len()).min(to.trials.len());
        let values = || from.trials.iter().chain(&to.trials).flatten().copied();
        let level = statistics::mean(&values().collect::<Vec<f64>>()).filter(|mean| *mean > 0.0);
        let step = level.map_or(0.0, |level| step_of(values()) / level);
        let question = |blocks: usize| {
            let (to_first, from_first) = (&to.trials[..blocks], &from.trials[..blocks]);
            let pairs = Pairs::new(to_first, from_first, None, blocks, to.better);
            Question { pairs, better: to.better, level: 0.0, tail_high: None, step }
        };
        let mut evidence = Evidence::default();
        let mut looks = self.looked.clone();
        // No step decides when a run ends, so the end is a look of its own.
        if looks.is_empty() || self.ended == Ended::Settled {
            looks.push(Look::at_end(self.blocks, looks.len()));
        }
        for look in looks {
            evidence.look(&question(blocks.min(look.blocks as usize)), look.weight, self.resolve);
        }
        let family = self.arms.iter().map(|arm| self.judged_count(arm)).sum();
        let is_complete = self.ended.is_complete();
        let answer = verdict::answer_one_of(&question(blocks), &evidence, family, is_complete);
        Some((answer.comparison?, answer.verdict.into()))
    }

    /// Number of verdicts on an arm.
    fn judged_count(&self, arm: &ArmOutcome) -> usize {
        if !arm.kind.is_compared() {
            return 0;
        }
        self.judged
            .iter()
            .filter(|name| arm.metrics.get(*name).is_some_and(|m| m.p.is_some()))
            .count()
    }
}
