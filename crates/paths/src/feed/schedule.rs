//! When messages are due: the open-loop loads of the path.
//!
//! Latency counts from these times, not from when a sender got round to it: a sender that
//! stalls would else hide the tail.

use std::time::Duration;
use std::{hint, thread};

/// Nanoseconds in a second.
const SECOND_NS: u128 = 1_000_000_000;
/// Closer to its time than this a message is waited for without sleeping.
const SPIN_NS: u64 = 80_000;
/// Longest sleep, so that a stop is seen.
const NAP_NS: u64 = 20_000_000;

/// Sleeps, then spins, until a clock shows `due_ns`; returns the time, or `None` when it was
/// stopped before. Whether it is stopped is asked between sleeps.
pub(super) fn wait_until(
    due_ns: u64,
    clock_ns: impl Fn() -> u64,
    is_stopped: impl Fn() -> bool,
) -> Option<u64> {
    loop {
        let now_ns = clock_ns();
        if now_ns >= due_ns {
            return Some(now_ns);
        }
        let left_ns = due_ns - now_ns;
        if left_ns > SPIN_NS {
            if is_stopped() {
                return None;
            }
            thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(NAP_NS)));
        } else {
            hint::spin_loop();
        }
    }
}

/// Intended send times, from the load's begin. The same arguments give the same times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    rate: u64,
    burst: u64,
}

impl Schedule {
    /// Evenly spaced: `rate` messages a second, at least 1.
    pub fn paced(rate: u64) -> Self {
        Schedule::burst(1, rate)
    }

    /// Bursts of `burst` messages, all of one due at once, evenly spaced so that the mean is
    /// `rate` messages a second; both at least 1.
    pub fn burst(burst: u64, rate: u64) -> Self {
        Schedule { rate: rate.max(1), burst: burst.max(1) }
    }

    /// Messages that are due together.
    pub fn burst_messages(&self) -> u64 {
        self.burst
    }

    /// Messages a second, on average.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// When message `n`, counted from 0, is due: nanoseconds from the begin, rounded down.
    #[inline]
    pub fn due_ns(&self, n: u64) -> u64 {
        let first = u128::from(n / self.burst) * u128::from(self.burst);
        u64::try_from(first * SECOND_NS / u128::from(self.rate)).unwrap_or(u64::MAX)
    }

    /// Messages due by `elapsed_ns` after the begin: those with `due_ns(n) <= elapsed_ns`.
    #[inline]
    pub fn due_count(&self, elapsed_ns: u64) -> u64 {
        // The largest k with floor(k × burst × 10⁹ / rate) <= elapsed, and its whole burst.
        let reached = (u128::from(elapsed_ns) + 1) * u128::from(self.rate) - 1;
        let bursts = reached / (u128::from(self.burst) * SECOND_NS) + 1;
        u64::try_from(bursts * u128::from(self.burst)).unwrap_or(u64::MAX)
    }

    /// Messages of a load that lasts `duration_ns`: those due before its end.
    pub fn count_within(&self, duration_ns: u64) -> u64 {
        duration_ns.checked_sub(1).map_or(0, |last| self.due_count(last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_that_is_far_is_waited_for_until_somebody_ends_it() {
        assert_eq!(wait_until(7, || 7, || true), Some(7), "it has come");
        assert_eq!(wait_until(u64::MAX, || 7, || true), None);
    }

    #[test]
    fn paced_messages_are_evenly_spaced() {
        let schedule = Schedule::paced(4);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|n| schedule.due_ns(n)),
            [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]
        );
        assert_eq!(schedule.count_within(1_000_000_000), 4);
    }

    #[test]
    fn a_burst_is_due_at_once_and_the_mean_rate_holds() {
        let schedule = Schedule::burst(100, 2000);
        assert_eq!(schedule.due_ns(0), schedule.due_ns(99));
        assert_eq!(schedule.due_ns(100), 50_000_000);
        assert_eq!(schedule.due_ns(1999), 950_000_000);
        assert_eq!(schedule.count_within(1_000_000_000), 2000);
    }

    #[test]
    fn nonsense_is_taken_for_one() {
        let schedule = Schedule::burst(0, 0);
        assert_eq!((schedule.burst_messages(), schedule.rate()), (1, 1));
        assert_eq!(schedule.due_ns(u64::MAX), u64::MAX);
        assert_eq!(schedule.count_within(0), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn what_is_due_is_what_the_times_say(
            burst in 1..2000u64, rate in 1..20_000_000u64, n in 0..1_000_000_000u64,
        ) {
            let schedule = Schedule::burst(burst, rate);
            let at = schedule.due_ns(n);
            prop_assert!(schedule.due_count(at) > n);
            if at > 0 {
                prop_assert!(schedule.due_count(at - 1) <= n);
            }
            prop_assert!(schedule.due_ns(n + 1) >= at);
        }
    }
}
