//! Trials of a run that was killed, or that still runs in another process.

use super::{Experiment, Trial};
use crate::TrialRecord;
use crate::judge::Table;
use stats::look_after;

impl Experiment {
    /// Records the trials of a run in the order in which they ran, whatever decided that order, and looks at its figures where
    /// the run did. An arm without a trial in a block that has ended was decided before it.
    ///
    /// Trials from one on that no run could have stored are left out: of an unknown arm, or of a block that is not the next.
    pub fn restore(&mut self, stored: Vec<TrialRecord>) {
        for trial in stored {
            let known = self.plan.arms.iter().position(|(arm, _)| arm.name == trial.arm);
            let ended_blocks = self.durations_ns.len() as u32;
            let is_next = if self.block_running {
                trial.block == self.block || trial.block == self.block + 1
            } else {
                trial.block == ended_blocks
            };
            let Some(arm) = known.filter(|_| is_next) else { break };
            self.elapsed_ns = self.elapsed_ns.max(trial.started_ms.saturating_mul(1_000_000));
            if self.block_running && trial.block != self.block {
                self.end_restored_block();
            }
            if !self.block_running {
                (self.block, self.block_started_ns) = (trial.block, self.elapsed_ns);
                self.block_running = true;
            }
            self.pending = Some(Trial::new(trial.block, arm, trial.warmup, self.elapsed_ns));
            self.record(trial.result);
        }
    }

    fn end_restored_block(&mut self) {
        let block = self.block;
        for arm in 0..self.plan.arms.len() {
            let mut trials = self.trials.iter().rev().take_while(|trial| trial.block == block);
            if block > 0 && self.runs(arm) && !trials.any(|trial| trial.arm == arm) {
                self.decided[arm] = Some(block - 1);
            }
        }
        self.end_block();
        if let Some(look) = look_after(self.blocks(), self.plan.min_blocks) {
            // Which arms that decided, the later trials tell.
            let mut seen = std::mem::take(&mut self.seen);
            Table::new(self).look(&mut seen, look);
            self.seen = seen;
        }
    }
}
