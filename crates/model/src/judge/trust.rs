//! Checks of a run's own assumptions, of its trials so far.

use super::Table;
use crate::pairs::Scale;
use crate::{Ticks, Trust, decision, statistics};

/// Share of the margin from which on the step of a metric's figures is reported.
const STEP_SHARE: f64 = 0.2;

impl Table<'_> {
    /// Checks of the run's own assumptions, of its trials so far.
    pub(crate) fn trust(&self) -> Trust {
        let judged = &self.experiment.plan.judged;
        Trust {
            carry_over: self.carry_over(),
            starts: self.start_spreads(),
            ticks: judged.iter().filter_map(|name| self.ticks(name)).collect(),
        }
    }

    /// Step of a judged metric, if it is more than a fifth of the margin; `None` for counts.
    fn ticks(&self, name: &str) -> Option<Ticks> {
        self.scale(name).filter(|scale| *scale == Scale::Ratio)?;
        let both = [self.baseline, self.control].into_iter().flatten();
        let values = both.filter_map(|arm| self.arms[arm].get(name)).flat_map(|of| of.given());
        let median = statistics::median(&values.collect::<Vec<f64>>())?;
        let step = decision::step_of(self.all_values(name));
        // Baselines of 0 are below the step.
        let share = if median > 0.0 { step / median } else { 1.0 };
        let is_coarse = share > STEP_SHARE * (self.experiment.plan.resolve - 1.0);
        is_coarse.then(|| Ticks { metric: name.to_owned(), step, share })
    }
}
