//! Due times of messages, for open-loop loads.
//!
//! Latency counts from the due time, not from the actual send: otherwise a stalled sender would
//! hide the tail.

use std::time::Duration;
use std::{hint, thread};

/// Nanoseconds in a second.
const SECOND_NS: u128 = 1_000_000_000;
/// Time before a due time during which the wait spins instead of sleeping.
const SPIN_NS: u64 = 80_000;
/// Longest sleep between checks for a stop.
const STOP_CHECK_INTERVAL_NS: u64 = 20_000_000;

/// Sleeps, then spins, until the clock reaches `due_ns`. Returns the time, or `None` if stopped,
/// which is checked between sleeps.
pub fn wait_until(
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
            thread::sleep(Duration::from_nanos((left_ns - SPIN_NS).min(STOP_CHECK_INTERVAL_NS)));
        } else {
            hint::spin_loop();
        }
    }
}

/// Intended send times, relative to the start of the load. Deterministic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendSchedule {
    rate: u64,
    burst: u64,
}

impl SendSchedule {
    /// Evenly spaced messages, `rate` per second, at least 1.
    pub fn paced(rate: u64) -> Self {
        SendSchedule::burst(1, rate)
    }

    /// Evenly spaced bursts of `burst` simultaneous messages, on average `rate` messages per second;
    /// both at least 1.
    pub fn burst(burst: u64, rate: u64) -> Self {
        SendSchedule { rate: rate.max(1), burst: burst.max(1) }
    }

    /// Messages per burst.
    pub fn burst_messages(&self) -> u64 {
        self.burst
    }

    /// Average messages per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Due time of message `n`, from 0: nanoseconds from the start, rounded down.
    #[inline]
    pub fn due_ns(&self, n: u64) -> u64 {
        let first = u128::from(n / self.burst) * u128::from(self.burst);
        u64::try_from(first * SECOND_NS / u128::from(self.rate)).unwrap_or(u64::MAX)
    }

    /// Number of messages with `due_ns(n) <= elapsed_ns`.
    #[inline]
    pub fn due_count(&self, elapsed_ns: u64) -> u64 {
        // The largest k with floor(k × burst × 10⁹ / rate) <= elapsed, and its whole burst.
        let reached = (u128::from(elapsed_ns) + 1) * u128::from(self.rate) - 1;
        let bursts = reached / (u128::from(self.burst) * SECOND_NS) + 1;
        u64::try_from(bursts * u128::from(self.burst)).unwrap_or(u64::MAX)
    }

    /// Number of messages due in a load of `duration_ns`.
    pub fn count_within(&self, duration_ns: u64) -> u64 {
        duration_ns.checked_sub(1).map_or(0, |last| self.due_count(last))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waiting_ends_at_the_due_time_or_on_a_stop() {
        assert_eq!(wait_until(7, || 7, || true), Some(7), "it has come");
        assert_eq!(wait_until(u64::MAX, || 7, || true), None);
    }

    #[test]
    fn paced_messages_are_evenly_spaced() {
        let schedule = SendSchedule::paced(4);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|n| schedule.due_ns(n)),
            [0, 250_000_000, 500_000_000, 750_000_000, 1_000_000_000]
        );
        assert_eq!(schedule.count_within(1_000_000_000), 4);
    }

    #[test]
    fn a_burst_is_due_at_once_and_the_mean_rate_holds() {
        let schedule = SendSchedule::burst(100, 2000);
        assert_eq!(schedule.due_ns(0), schedule.due_ns(99));
        assert_eq!(schedule.due_ns(100), 50_000_000);
        assert_eq!(schedule.due_ns(1999), 950_000_000);
        assert_eq!(schedule.count_within(1_000_000_000), 2000);
    }

    #[test]
    fn zero_arguments_are_taken_as_one() {
        let schedule = SendSchedule::burst(0, 0);
        assert_eq!((schedule.burst_messages(), schedule.rate()), (1, 1));
        assert_eq!(schedule.due_ns(u64::MAX), u64::MAX);
        assert_eq!(schedule.count_within(0), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn due_counts_match_due_times(
            burst in 1..2000u64, rate in 1..20_000_000u64, n in 0..1_000_000_000u64,
        ) {
            let schedule = SendSchedule::burst(burst, rate);
            let at = schedule.due_ns(n);
            prop_assert!(schedule.due_count(at) > n);
            if at > 0 {
                prop_assert!(schedule.due_count(at - 1) <= n);
            }
            prop_assert!(schedule.due_ns(n + 1) >= at);
        }
    }
}
