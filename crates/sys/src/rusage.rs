//! CPU time and context switches of a thread.

use serde::{Deserialize, Serialize};

use crate::counters::{self, HardwareCounts};

/// Resources used by a thread since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadUsage {
    /// CPU time in user mode, nanoseconds; the split from `system_ns` is sampled by the
    /// kernel's tick, the sum is exact.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds, with softirqs that ran in this thread (unless the kernel
    /// accounts interrupt time separately).
    pub system_ns: u64,
    /// Voluntary and involuntary context switches.
    pub context_switch_count: u64,
    /// Counts of the processor; `None` where the kernel gives none, or none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareCounts>,
}

impl ThreadUsage {
    /// Of the calling thread.
    pub fn now() -> Self {
        let cpu_ns = crate::clock::thread_cpu_ns();
        // SAFETY: all-zero is a valid rusage, a plain C struct of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: RUSAGE_THREAD is valid on Linux and `usage` may be written.
        unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
        // The scheduler counts in nanoseconds, rusage in microseconds.
        let user_ns = timeval_ns(usage.ru_utime).min(cpu_ns);
        ThreadUsage {
            user_ns,
            system_ns: cpu_ns - user_ns,
            context_switch_count: (usage.ru_nvcsw + usage.ru_nivcsw) as u64,
            hardware: None,
        }
    }

    /// Of the calling thread, with the counts of the processor, which are opened at the first call: not for a thread that a
    /// filter of system calls confines.
    pub fn counted() -> Self {
        ThreadUsage { hardware: counters::thread_counts(), ..ThreadUsage::now() }
    }

    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    pub fn since(&self, earlier: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            context_switch_count: self
                .context_switch_count
                .saturating_sub(earlier.context_switch_count),
            hardware: self.hardware.zip(earlier.hardware).map(|(now, before)| now.since(&before)),
        }
    }
}

pub(crate) fn timeval_ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

/// Largest resident size of this process so far, in bytes.
pub fn peak_resident_bytes() -> u64 {
    // SAFETY: all-zero is a valid rusage, a plain C struct of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: RUSAGE_SELF is always valid and `usage` may be written.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    usage.ru_maxrss as u64 * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_used_what_its_clock_says_and_one_that_sleeps_switches() {
        let before = ThreadUsage::now();
        let began = crate::clock::thread_cpu_ns();
        while crate::clock::thread_cpu_ns() - began < 5_000_000 {}
        let worked = ThreadUsage::now().since(&before);
        let read = crate::clock::thread_cpu_ns() - began;
        let used = worked.user_ns + worked.system_ns;
        assert!((5_000_000..=read + 1_000_000).contains(&used), "{worked:?} {read}");
        for _ in 0..10 {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        let slept = ThreadUsage::now().since(&before);
        assert!(slept.context_switch_count >= worked.context_switch_count + 10, "{slept:?}");
    }

    #[test]
    fn memory_that_was_touched_shows_at_the_peak() {
        let before = peak_resident_bytes();
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(peak_resident_bytes() >= before.max(touched.len() as u64));
    }
}
