//! Real-time scheduling of threads, and locked memory.

use std::fs;
use std::io;

/// Puts the calling thread into SCHED_FIFO: it runs until it sleeps or a thread of higher priority
/// needs its CPU. Ends with the thread.
///
/// - `priority`: 1 to 99.
///
/// Errors: EPERM without CAP_SYS_NICE and without room in RLIMIT_RTPRIO; EINVAL for another
/// priority.
///
/// Source: sched(7).
pub fn set_fifo(priority: i32) -> io::Result<()> {
    fifo(0, priority)
}

/// Puts a thread of another process into SCHED_FIFO; `tid` is its kernel thread id.
///
/// Errors: those of [`set_fifo`]; ESRCH if there is no such thread.
pub fn set_fifo_thread(tid: u32, priority: i32) -> io::Result<()> {
    match libc::pid_t::try_from(tid) {
        // 0 would be the calling thread.
        Ok(tid @ 1..) => fifo(tid, priority),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

fn fifo(tid: libc::pid_t, priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameters live through the call.
    let rc = unsafe { libc::sched_setscheduler(tid, libc::SCHED_FIFO, &parameters) };
    if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Real-time priority of the calling thread; `None` if it has none.
pub fn fifo_priority() -> Option<i32> {
    let mut parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: no pointer is passed; pid 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: the parameters may be written; pid 0 is the calling thread.
    let rc = unsafe { libc::sched_getparam(0, &mut parameters) };
    (policy == libc::SCHED_FIFO && rc == 0).then_some(parameters.sched_priority)
}

/// Locked memory of this process in bytes; 0 if unknown.
///
/// Source: proc(5), VmLck.
pub fn locked_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn read(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    text.trim().parse::<i64>().ok()
}

/// Time that real-time threads may run in each period, as (microseconds, period in microseconds);
/// `None` if it is unlimited or unknown.
///
/// Source: the kernel's Documentation/scheduler/sched-rt-group.rst.
pub fn real_time_share_us() -> Option<(u64, u64)> {
    let runtime_us = u64::try_from(read("sched_rt_runtime_us")?).ok()?;
    let period_us = u64::try_from(read("sched_rt_period_us")?).ok()?;
    (runtime_us < period_us).then_some((runtime_us, period_us))
}

/// Locks all present and future memory of this process until dropped.
#[derive(Debug)]
#[must_use = "memory may be paged out again when this is dropped"]
pub struct LockedMemory(());

impl LockedMemory {
    /// Locks it.
    ///
    /// Errors: ENOMEM above RLIMIT_MEMLOCK, EPERM where that is 0; neither with CAP_IPC_LOCK.
    ///
    /// Source: mlockall(2).
    pub fn hold() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let rc = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
        if rc != 0 { Err(io::Error::last_os_error()) } else { Ok(LockedMemory(())) }
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        // SAFETY: no pointer is passed; it cannot fail after mlockall.
        unsafe { libc::munlockall() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absurd_priority_is_refused_and_changes_nothing() {
        assert!(set_fifo(100).is_err());
        assert!(set_fifo_thread(0, 1).is_err(), "not ourselves by accident");
        assert_eq!(fifo_priority(), None);
    }

    #[test]
    fn locked_memory_shows_in_the_status_and_goes_with_the_guard() {
        match LockedMemory::hold() {
            Ok(guard) => {
                assert!(locked_bytes() > 0);
                drop(guard);
                assert_eq!(locked_bytes(), 0);
            }
            Err(error) => testkit::skip("root", format!("mlockall: {error}")),
        }
    }
}
