//! The guard of a run: the hard tier, fed with samples and with the latency of the last off-periods.

use std::collections::VecDeque;

use model::live::{GuardRule, GuardSample, HardGuard, LiveArm, Trip};

/// Off-periods whose latency is the guard's measure: about two minutes of 5-second periods.
const OFF_PERIODS: usize = 12;

pub(super) struct Guard {
    hard: HardGuard,
    /// p99 of the last off-periods.
    off_p99_ns: VecDeque<f64>,
}

impl Guard {
    /// - `p99_ns`: of the baseline.
    pub(super) fn new(rules: &[GuardRule], p99_ns: Option<f64>) -> Self {
        let mut hard = HardGuard::new(rules);
        if let Some(p99_ns) = p99_ns {
            hard.settle_off(p99_ns);
        }
        Guard { hard, off_p99_ns: p99_ns.into_iter().collect() }
    }

    pub(super) fn slow_limit_ns(&self) -> Option<u64> {
        self.hard.slow_limit_ns()
    }

    /// Begins a period of an arm at the end of the act.
    pub(super) fn switch(&mut self, arm: LiveArm, now_ns: u64) {
        self.hard.switch(arm, now_ns);
    }

    pub(super) fn observe(&mut self, sample: &GuardSample) -> Option<Trip> {
        self.hard.observe(sample)
    }

    /// Takes the p99 of an off-period that the guard did not end.
    pub(super) fn off_period(&mut self, p99_ns: f64) {
        if self.off_p99_ns.len() == OFF_PERIODS {
            self.off_p99_ns.pop_front();
        }
        self.off_p99_ns.push_back(p99_ns);
        let mut sorted: Vec<f64> = self.off_p99_ns.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        self.hard.settle_off(sorted[sorted.len() / 2]);
    }
}
