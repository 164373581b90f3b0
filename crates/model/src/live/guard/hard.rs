//! The tier that acts at once, by samples of a tenth of a second.

use std::collections::VecDeque;
use std::fmt;

use super::GuardRule;
use crate::live::LiveArm;

/// Time for which a request may wait for its answer or its acknowledgement.
const WAIT_LIMIT_NS: f64 = 5e8;

/// Share of failed requests that trips without any rule.
const ERROR_SHARE: f64 = 0.1;

/// Fewest failed, or slow, requests that trip. With 1 in place of 5, a limit of 0.1 % fired 10 to 85 times an hour by itself.
const EVENTS_MIN: u64 = 5;

/// Window of failed requests.
const ERRORS_WINDOW_NS: u64 = 1_000_000_000;

/// Share of slow requests that trips, in the window of slow requests. More than 1 % over 2x fired 98 times an hour by itself.
const SLOW_SHARE: f64 = 0.2;

/// Window of slow requests, and of failed ones by the rule of every run, which needs it where few requests come.
const SLOW_WINDOW_NS: u64 = 5_000_000_000;

/// Factor on the p99 of the last off-periods beyond which a request is slow, and beyond which it may not wait.
const SLOW_FACTOR: f64 = 2.0;

/// Figure whose rule gives another factor for slow requests.
const SLOW_FIGURE: &str = "p99";

/// Time after a trip's switch in which the queues of the other arm drain, and its slow and failed requests do not count.
const DRAIN_NS: u64 = 2_000_000_000;

/// Longest time that one sample stands for.
const SAMPLE_NS_MAX: u64 = 1_000_000_000;

/// Samples that an arm keeps at most.
const SAMPLES_MAX: usize = 1024;

/// Requests since the sample before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuardSample {
    /// Time of the sample, on the caller's clock.
    pub now_ns: u64,
    /// Answered or failed requests.
    pub request_count: u64,
    /// Failed ones among them.
    pub error_count: u64,
    /// Those that took longer than [`HardGuard::slow_limit_ns`].
    pub slow_count: u64,
    /// Age of the oldest request that is asked and unanswered, or sent and unacknowledged; `None` without one.
    pub waiting_ns: Option<u64>,
}

/// Reason to undo the setting at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trip {
    /// A request waits.
    Waiting {
        /// Time for which it waits.
        waiting_ns: u64,
        /// Time for which it may.
        limit_ns: u64,
    },
    /// Requests fail.
    Errors {
        /// Share that failed, 0 to 1.
        share: f64,
        /// Share that may.
        limit: f64,
    },
    /// Requests are slow.
    Slow {
        /// Share that took longer than `limit_ns`, 0 to 1.
        share: f64,
        /// Time that counts as slow.
        limit_ns: u64,
    },
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trip::Waiting { waiting_ns, limit_ns } => write!(
                f,
                "a request waited for {:.2} s, and the limit is {:.2} s",
                *waiting_ns as f64 / 1e9,
                *limit_ns as f64 / 1e9
            ),
            Trip::Errors { share, limit } => write!(
                f,
                "{:.2} % of the requests failed, and the limit is {:.2} %",
                share * 100.0,
                limit * 100.0
            ),
            Trip::Slow { share, limit_ns } => write!(
                f,
                "{:.0} % of the requests of {} s took longer than {:.2} ms",
                share * 100.0,
                SLOW_WINDOW_NS / 1_000_000_000,
                *limit_ns as f64 / 1e6
            ),
        }
    }
}

/// Sums over a window.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    covered_ns: u64,
    request_count: u64,
    error_count: u64,
    slow_count: u64,
}

impl Sums {
    fn share(self, count: u64) -> f64 {
        if self.request_count == 0 { 0.0 } else { count as f64 / self.request_count as f64 }
    }
}

/// Last samples of one arm, over all its periods: a window may be longer than a period.
#[derive(Debug, Clone, Default)]
struct Window(VecDeque<(u64, GuardSample)>);

impl Window {
    fn add(&mut self, covered_ns: u64, sample: GuardSample) {
        self.0.push_back((covered_ns, sample));
        while self.0.len() > SAMPLES_MAX || self.is_longer() {
            self.0.pop_front();
        }
    }

    /// True if the oldest sample is not needed.
    fn is_longer(&self) -> bool {
        let covered: u64 = self.0.iter().skip(1).map(|(covered_ns, _)| covered_ns).sum();
        covered >= SLOW_WINDOW_NS
    }

    /// Sums over the newest samples that cover a time, or all if that is less.
    fn sums(&self, window_ns: u64) -> Sums {
        let mut sums = Sums::default();
        for (covered_ns, sample) in self.0.iter().rev() {
            if sums.covered_ns >= window_ns {
                break;
            }
            sums.covered_ns += covered_ns;
            sums.request_count = sums.request_count.saturating_add(sample.request_count);
            sums.error_count = sums.error_count.saturating_add(sample.error_count);
            sums.slow_count = sums.slow_count.saturating_add(sample.slow_count);
        }
        sums
    }
}

/// The guard's hard tier; the same rules watch both arms.
#[derive(Debug, Clone)]
pub struct HardGuard {
    /// Limits of failed requests that the user gave.
    error_limits: Vec<f64>,
    slow_factor: f64,
    off_p99_ns: Option<f64>,
    arm: LiveArm,
    /// Of on and of off.
    windows: [Window; 2],
    switched_ns: u64,
    sampled_ns: u64,
    /// Until then, slow and failed requests belong to the arm before.
    drained_ns: u64,
    is_tripped: bool,
}

impl HardGuard {
    /// A guard before the first switch, with the arm off.
    pub fn new(rules: &[GuardRule]) -> Self {
        let mut guard = HardGuard {
            error_limits: Vec::new(),
            slow_factor: SLOW_FACTOR,
            off_p99_ns: None,
            arm: LiveArm::Off,
            windows: [Window::default(), Window::default()],
            switched_ns: 0,
            sampled_ns: 0,
            drained_ns: 0,
            is_tripped: false,
        };
        for rule in rules {
            match rule {
                GuardRule::Errors { share } => guard.error_limits.push(*share),
                // A smaller factor would trip by itself; the soft tier judges it.
                GuardRule::Ratio { figure, factor } if figure == SLOW_FIGURE => {
                    guard.slow_factor = factor.max(SLOW_FACTOR);
                }
                GuardRule::Ratio { .. } => {}
            }
        }
        guard
    }

    /// Time beyond which a request counts as slow; `None` before [`settle_off`](Self::settle_off).
    pub fn slow_limit_ns(&self) -> Option<u64> {
        self.off_p99_ns.map(|p99_ns| (p99_ns * self.slow_factor) as u64)
    }

    /// Takes the p99 of the last minutes of off-periods, or of the baseline.
    pub fn settle_off(&mut self, p99_ns: f64) {
        if p99_ns.is_finite() && p99_ns > 0.0 {
            self.off_p99_ns = Some(p99_ns);
        }
    }

    /// Begins a period of an arm, and arms the guard again after a trip.
    ///
    /// - `now_ns`: end of the act of switching.
    pub fn switch(&mut self, arm: LiveArm, now_ns: u64) {
        if self.is_tripped && arm != self.arm {
            self.drained_ns = now_ns.saturating_add(DRAIN_NS);
        }
        self.is_tripped = false;
        self.arm = arm;
        self.switched_ns = now_ns;
        self.sampled_ns = now_ns;
    }

    /// Takes a sample; returns a trip once a period.
    pub fn observe(&mut self, sample: &GuardSample) -> Option<Trip> {
        let covered_ns = sample.now_ns.saturating_sub(self.sampled_ns).min(SAMPLE_NS_MAX);
        self.sampled_ns = self.sampled_ns.max(sample.now_ns);
        if sample.now_ns >= self.drained_ns {
            self.window().add(covered_ns, *sample);
        }
        if self.is_tripped {
            return None;
        }
        let trip = self.waits(sample).or_else(|| self.fails()).or_else(|| self.is_slow())?;
        self.is_tripped = true;
        // One harm costs one period.
        self.window().0.clear();
        Some(trip)
    }

    fn window(&mut self) -> &mut Window {
        &mut self.windows[usize::from(self.arm == LiveArm::Off)]
    }

    fn current(&self) -> &Window {
        &self.windows[usize::from(self.arm == LiveArm::Off)]
    }

    /// A request that was asked before the switch waits because of the other arm.
    fn waits(&self, sample: &GuardSample) -> Option<Trip> {
        let limit_ns =
            self.off_p99_ns.map_or(0.0, |p99| p99 * SLOW_FACTOR).max(WAIT_LIMIT_NS) as u64;
        let waiting_ns = sample.waiting_ns.filter(|waiting_ns| *waiting_ns >= limit_ns)?;
        let is_own = waiting_ns <= sample.now_ns.saturating_sub(self.switched_ns);
        is_own.then_some(Trip::Waiting { waiting_ns, limit_ns })
    }

    fn fails(&self) -> Option<Trip> {
        let own = [(ERROR_SHARE, ERRORS_WINDOW_NS), (ERROR_SHARE, SLOW_WINDOW_NS)];
        let given = self.error_limits.iter().map(|limit| (*limit, ERRORS_WINDOW_NS));
        own.into_iter().chain(given).find_map(|(limit, window_ns)| {
            let sums = self.current().sums(window_ns);
            let share = sums.share(sums.error_count);
            (sums.error_count >= EVENTS_MIN && share >= limit)
                .then_some(Trip::Errors { share, limit })
        })
    }

    fn is_slow(&self) -> Option<Trip> {
        let limit_ns = self.slow_limit_ns()?;
        let sums = self.current().sums(SLOW_WINDOW_NS);
        let share = sums.share(sums.slow_count);
        let is_full = sums.covered_ns >= SLOW_WINDOW_NS;
        (is_full && sums.slow_count >= EVENTS_MIN && share > SLOW_SHARE)
            .then_some(Trip::Slow { share, limit_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A guard 10 s after its first switch, with a p99 of 10 ms.
    struct Run {
        guard: HardGuard,
        now_ns: u64,
    }

    impl Run {
        fn new(rules: &[&str]) -> Self {
            let rules: Vec<GuardRule> =
                rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
            let mut guard = HardGuard::new(&rules);
            guard.settle_off(10e6);
            let mut run = Run { guard, now_ns: 0 };
            run.switch(LiveArm::On);
            run
        }

        fn switch(&mut self, arm: LiveArm) {
            self.guard.switch(arm, self.now_ns);
        }

        /// Samples of 100 ms until one trips; returns the number of samples and the trip.
        fn samples(&mut self, count: u32, sample: GuardSample) -> Option<(u32, Trip)> {
            (1..=count).find_map(|number| {
                self.now_ns += 100 * MS;
                let sample = GuardSample { now_ns: self.now_ns, ..sample };
                self.guard.observe(&sample).map(|trip| (number, trip))
            })
        }
    }

    const CALM: GuardSample = GuardSample {
        now_ns: 0,
        request_count: 30,
        error_count: 0,
        slow_count: 0,
        waiting_ns: Some(5 * MS),
    };

    fn waiting(ms: u64) -> GuardSample {
        GuardSample { waiting_ns: Some(ms * MS), ..GuardSample::default() }
    }

    fn failing(error_count: u64) -> GuardSample {
        GuardSample { error_count, ..CALM }
    }

    #[test]
    fn calm_service_and_a_pausing_client_never_trip() {
        let mut run = Run::new(&["errors > 0.1%", "p99 > 2x"]);
        assert_eq!(run.samples(1_000, CALM), None);
        assert_eq!(run.samples(100, GuardSample::default()), None);
        assert_eq!(run.guard.slow_limit_ns(), Some(20 * MS));
    }

    #[test]
    fn unanswered_request_trips_after_half_a_second_and_once() {
        let mut run = Run::new(&[]);
        run.samples(20, CALM);
        assert_eq!(run.samples(1, waiting(499)), None);
        let (_, trip) = run.samples(1, waiting(500)).expect("a trip");
        assert_eq!(trip.to_string(), "a request waited for 0.50 s, and the limit is 0.50 s");
        assert_eq!(run.samples(10, waiting(600)), None);
        // It was asked before the switch.
        run.switch(LiveArm::Off);
        assert_eq!(run.samples(5, waiting(1_200)), None);
        // A service whose p99 is 400 ms may wait for twice that.
        run.guard.settle_off(400e6);
        run.now_ns += 2_000 * MS;
        assert_eq!(run.samples(1, waiting(700)), None);
        assert!(run.samples(1, waiting(800)).is_some());
    }

    #[test]
    fn failed_requests_trip_from_five_on() {
        // A tenth of the requests.
        assert_eq!(Run::new(&[]).samples(3, failing(4)).map(|(number, _)| number), Some(2));
        // 1 of 30 requests: 3.3 %.
        assert_eq!(Run::new(&[]).samples(100, failing(1)), None);
        let (number, trip) = Run::new(&["errors > 0.1%"]).samples(100, failing(1)).expect("a trip");
        assert_eq!(number, 5);
        assert_eq!(trip.to_string(), "3.33 % of the requests failed, and the limit is 0.10 %");
    }

    #[test]
    fn slow_requests_trip_after_five_seconds_of_their_arm() {
        let slow = GuardSample { slow_count: 9, ..CALM };
        assert_eq!(Run::new(&[]).samples(100, slow).map(|(number, _)| number), Some(50));
        // A fifth is not more than a fifth.
        assert_eq!(Run::new(&[]).samples(200, GuardSample { slow_count: 6, ..CALM }), None);
        // In periods of 2 s, the third on-period completes the five seconds; off-periods do not count.
        let mut run = Run::new(&[]);
        for _ in 0..2 {
            assert_eq!(run.samples(20, slow), None);
            run.switch(LiveArm::Off);
            assert_eq!(run.samples(20, CALM), None);
            run.switch(LiveArm::On);
        }
        assert_eq!(run.samples(20, slow).map(|(number, _)| number), Some(10));
    }

    #[test]
    fn queues_that_drain_after_a_trip_do_not_trip_the_other_arm() {
        let mut run = Run::new(&[]);
        let failing = GuardSample { error_count: 20, ..CALM };
        assert!(run.samples(1, failing).is_some());
        run.switch(LiveArm::Off);
        assert_eq!(run.samples(19, failing), None);
        assert!(run.samples(2, failing).is_some());
    }

    #[test]
    fn samples_kept_are_bounded() {
        let mut run = Run::new(&[]);
        for _ in 0..10_000 {
            // The caller's clock stands still.
            run.guard.observe(&CALM);
        }
        assert!(run.guard.current().0.len() <= SAMPLES_MAX);
    }
}
