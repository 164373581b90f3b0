//! Forecast of the blocks and of the time that a resolution needs.

use super::Experiment;
use crate::judge::Table;
use crate::{FORECAST_AFTER, Forecast};

impl Experiment {
    /// Needs of the figures that are open, from their noise so far; `None` before the eighth block, and if none is open.
    ///
    /// - `is_open`: of an arm and a judged metric.
    pub(crate) fn forecast_of(
        &self,
        table: &Table,
        is_open: &dyn Fn(usize, &str) -> bool,
    ) -> Option<Forecast> {
        let blocks = f64::from(self.blocks());
        if self.blocks() < FORECAST_AFTER || self.plan.resolve <= 1.0 {
            return None;
        }
        let finds = table.finds(is_open)?.ln();
        // The error of a median falls with the root of the number of blocks.
        let needed = blocks * (finds / self.plan.resolve.ln()).powi(2);
        let needed = needed.clamp(blocks, f64::from(u32::MAX));
        let block_ns = self.mean_block_ns().max(1) as f64;
        let spent_ns = self.elapsed_ns.min(self.plan.budget_ns);
        let left_ns = self.plan.budget_ns - spent_ns;
        let until = (blocks + left_ns as f64 / block_ns).min(f64::from(self.plan.max_blocks));
        Some(Forecast {
            blocks: needed.ceil() as u32,
            whole_ms: ((spent_ns as f64 + (needed - blocks) * block_ns) / 1e6) as u64,
            reaches: (finds * (blocks / until.max(blocks)).sqrt()).exp(),
        })
    }

    /// Needs of the arms that still run, from their noise so far; `None` before the eighth block, and if none is open.
    pub fn forecast(&self) -> Option<Forecast> {
        self.forecast_of(&Table::new(self), &|arm, _| self.is_open(arm))
    }
}
