//! The clock of every measurement.

/// CLOCK_MONOTONIC in nanoseconds: a vDSO read, no system call.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in nanoseconds since 1970, as kernel packet time stamps use it.
#[inline]
pub fn realtime_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}

/// CPU time of the calling thread in nanoseconds, as the scheduler counts it.
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of this process in nanoseconds, ended ones included.
pub fn process_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// How late the kernel may wake the calling thread from a timed sleep; 50 µs unless set, which
/// is most of a 10,000/s schedule's interval.
///
/// Source: prctl(2), PR_SET_TIMERSLACK.
pub fn set_timer_slack_ns(slack_ns: u64) {
    // SAFETY: no pointer is passed; a refusal leaves the default, which is merely later.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

#[inline]
fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; the clock ids used always exist,
    // so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_move_forward() {
        let (monotonic, cpu) = (monotonic_ns(), thread_cpu_ns());
        assert!(realtime_ns() > 1_600_000_000_000_000_000);
        while thread_cpu_ns() == cpu {}
        assert!(monotonic_ns() > monotonic);
    }
}
