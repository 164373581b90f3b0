//! Clocks of all measurements.

/// CLOCK_MONOTONIC in nanoseconds: a vDSO read, no system call.
#[inline]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in nanoseconds since 1970, the clock of kernel packet time stamps.
#[inline]
pub fn realtime_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}

/// CLOCK_BOOTTIME in nanoseconds: time since boot, suspend included.
pub fn boottime_ns() -> u64 {
    read_ns(libc::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread in nanoseconds, counted by the scheduler.
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU clock of a thread, readable from other threads.
#[derive(Debug, Clone, Copy)]
pub struct ThreadCpuClock(libc::clockid_t);

impl ThreadCpuClock {
    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        // SAFETY: no argument; always the calling thread.
        let this = unsafe { libc::pthread_self() };
        let mut id = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: `this` is the running thread and `id` may be written, so the call cannot fail.
        unsafe { libc::pthread_getcpuclockid(this, &mut id) };
        ThreadCpuClock(id)
    }

    /// Nanoseconds; 0 once the thread has ended.
    pub fn read_ns(&self) -> u64 {
        read_ns(self.0)
    }
}

/// CPU time of all threads of this process in nanoseconds, ended ones included.
pub fn process_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of all threads of a process in nanoseconds, ended ones included; `None` if there is no such
/// process, or it was reaped.
///
/// Source: clock_getcpuclockid(3).
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    // 0 would be the calling process.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` may be written.
    let rc = unsafe { libc::clock_getcpuclockid(pid, &mut clock) };
    if rc != 0 {
        return None;
    }
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `used` may be written; a clock that no longer exists is an error, not a fault.
    let rc = unsafe { libc::clock_gettime(clock, &mut used) };
    (rc == 0).then_some(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64)
}

/// Sets how late the kernel may wake the calling thread from a timed sleep. The default, 50 µs, is
/// half of the interval of a 10,000/s schedule.
///
/// Source: prctl(2), PR_SET_TIMERSLACK.
pub fn set_timer_slack_ns(slack_ns: u64) {
    // SAFETY: no pointer is passed; on failure the default slack stays.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
}

/// Maximum error of the host clock reported by the kernel; `None` if it is not synchronised (by
/// NTP or PTP).
///
/// Source: adjtimex(2): STA_UNSYNC and `maxerror`.
pub fn host_error_ns() -> Option<u64> {
    // SAFETY: all-zero is a valid timex, a plain C struct of integers.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` may be written; with `modes` 0 the call changes nothing.
    let kept = unsafe { libc::adjtimex(&mut state) };
    let is_kept = kept >= 0 && kept != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0;
    is_kept.then(|| u64::try_from(state.maxerror).unwrap_or(0) * 1000)
}

/// CLOCK_TAI minus CLOCK_REALTIME in nanoseconds: whole seconds, 0 if nothing has set it.
///
/// Source: adjtimex(2), `tai`.
pub fn tai_offset_ns() -> i64 {
    // SAFETY: all-zero is a valid timex, a plain C struct of integers.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` may be written; with `modes` 0 the call changes nothing.
    unsafe { libc::adjtimex(&mut state) };
    i64::from(state.tai) * 1_000_000_000
}

#[inline]
fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` may be written. The call fails only for a thread that has ended; `now` stays 0
    // then.
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
