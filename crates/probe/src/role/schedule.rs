//! Open-loop schedules: due times of datagrams.

use std::time::Duration;

use sys::clock::monotonic_ns;

/// Number of datagrams due after `elapsed_ns`; the first is due at 0.
pub(super) fn due_count(elapsed_ns: u64, rate_pps: u64) -> u64 {
    (u128::from(elapsed_ns) * u128::from(rate_pps) / 1_000_000_000) as u64 + 1
}

/// Due time of datagram `n` in nanoseconds from the start of the schedule.
pub(super) fn due_at_ns(n: u64, rate_pps: u64) -> u64 {
    (u128::from(n) * 1_000_000_000 / u128::from(rate_pps)) as u64
}

/// Waits for a time of CLOCK_MONOTONIC, sleeping or spinning as the engine does.
pub(super) fn pause_until(until_ns: u64, wait: io::Wait) {
    let left_ns = until_ns.saturating_sub(monotonic_ns()).min(20_000_000);
    if wait == io::Wait::Block && left_ns > 60_000 {
        std::thread::sleep(Duration::from_nanos(left_ns - 50_000));
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_due_when_it_says() {
        for rate_pps in [1, 3, 10_000, 3_333_333] {
            for n in [0, 1, 2, 999, 1_000_000] {
                let at = due_at_ns(n, rate_pps);
                assert!(due_count(at + 1, rate_pps) > n, "{n} at {rate_pps}");
                assert!(at == 0 || due_count(at - 1, rate_pps) <= n + 1);
            }
        }
    }
}
