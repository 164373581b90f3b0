//! Timer samples of one thread: when it ran, and where.
//!
//! Source: perf_event_open(2), a software event, which needs no counter of the processor.

use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mmap::Mapping;
use crate::perf::SoftwareEvent;

/// Bytes of records that are kept: 4,096 samples.
const RECORDS_BYTES: usize = 64 << 10;
/// Header and time of a sample.
const SAMPLE_BYTES: usize = 16;

/// Where the thread was when the timer fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledMode {
    User,
    Kernel,
    /// In a guest that it runs for KVM.
    Guest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadSample {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub mode: SampledMode,
}

/// Samples a thread until it is dropped.
#[derive(Debug)]
pub struct ThreadSampler {
    ring: Mapping,
    page_bytes: usize,
    #[expect(dead_code, reason = "open as long as the samples are taken")]
    event: SoftwareEvent,
}

impl ThreadSampler {
    /// Starts a timer that fires after each `period_ns` in which the thread ran. A thread that sleeps has no samples.
    ///
    /// - `thread`: as `gettid` numbers it.
    ///
    /// # Errors
    /// ESRCH if there is no such thread; EACCES without CAP_PERFMON.
    pub fn start(thread: u32, period_ns: u64) -> io::Result<ThreadSampler> {
        let event = SoftwareEvent::thread_samples(thread, period_ns)?;
        // SAFETY: the call takes and returns numbers only.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_bytes = usize::try_from(page_bytes).map_err(io::Error::other)?;
        // The first page describes the ring.
        let ring = Mapping::of_fd(event.as_fd(), page_bytes + RECORDS_BYTES, 0)?;
        Ok(ThreadSampler { ring, page_bytes, event })
    }

    /// Samples so far, in the order of their time. Those after the first 4,096 are not kept.
    pub fn samples(&self) -> Vec<ThreadSample> {
        let head = self.word(offset_of!(libbpf_sys::perf_event_mmap_page, data_head));
        // The ring is never released, so it does not wrap.
        let end = usize::try_from(head.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        let words = (self.page_bytes..self.page_bytes + end.min(RECORDS_BYTES)).step_by(8);
        let words: Vec<u64> = words.map(|at| self.word(at).load(Ordering::Relaxed)).collect();
        parse(&words)
    }

    fn word(&self, offset_bytes: usize) -> &AtomicU64 {
        assert!(offset_bytes.is_multiple_of(8), "no word at this offset");
        let at = self.ring.at(offset_bytes, 8);
        // SAFETY: `at` is inside the mapping, which lives as long as `self`; it is aligned, and only read.
        unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) }
    }
}

/// Records of the kernel: type (32 bits), mode and other flags (16), length (16), and of a sample the time.
fn parse(words: &[u64]) -> Vec<ThreadSample> {
    let (mut samples, mut at) = (Vec::new(), 0);
    while let Some(&header) = words.get(at) {
        let (kind, misc, len_bytes) = (header as u32, header >> 32 & 0xffff, header >> 48);
        let len_bytes = len_bytes as usize;
        if len_bytes < 8 || !len_bytes.is_multiple_of(8) {
            break;
        }
        let mode = match misc as u32 & libbpf_sys::PERF_RECORD_MISC_CPUMODE_MASK {
            libbpf_sys::PERF_RECORD_MISC_KERNEL => Some(SampledMode::Kernel),
            libbpf_sys::PERF_RECORD_MISC_USER => Some(SampledMode::User),
            libbpf_sys::PERF_RECORD_MISC_GUEST_KERNEL | libbpf_sys::PERF_RECORD_MISC_GUEST_USER => {
                Some(SampledMode::Guest)
            }
            _ => None,
        };
        // Other records tell of lost samples and of limits.
        if kind == libbpf_sys::PERF_RECORD_SAMPLE
            && len_bytes == SAMPLE_BYTES
            && let (Some(mode), Some(&at_ns)) = (mode, words.get(at + 1))
        {
            samples.push(ThreadSample { at_ns, mode });
        }
        at += len_bytes / 8;
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn record(kind: u32, misc: u64, len_bytes: u64) -> u64 {
        u64::from(kind) | misc << 32 | len_bytes << 48
    }

    #[test]
    fn records_are_samples_with_their_mode_and_others_are_skipped() {
        let sample = libbpf_sys::PERF_RECORD_SAMPLE;
        let words = [
            record(sample, 2, 16),
            10,
            record(libbpf_sys::PERF_RECORD_LOST, 0, 24),
            0,
            7,
            record(sample, 1, 16),
            20,
            record(sample, 5, 16),
            30,
            record(sample, 4 | 1 << 14, 16),
            40,
            record(sample, 1, 16),
        ];
        use SampledMode::{Guest, Kernel, User};
        let expected = [(10, User), (20, Kernel), (30, Guest), (40, Guest)];
        assert_eq!(parse(&words), expected.map(|(at_ns, mode)| ThreadSample { at_ns, mode }));
        for wrong in [0, 4, 12] {
            assert_eq!(parse(&[record(sample, 2, wrong), 10]), []);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn a_thread_has_samples_while_it_computes_and_none_while_it_sleeps() {
        const PERIOD_NS: u64 = 1_000_000;
        let sampler = match ThreadSampler::start(crate::thread::id(), PERIOD_NS) {
            Ok(sampler) => sampler,
            Err(why) => return testkit::skip("bpf", why.to_string()),
        };
        let begin_ns = clock::monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept_count = sampler.samples().len();
        assert!(slept_count <= 5, "{slept_count}");
        let cpu_ns = clock::thread_cpu_ns();
        while clock::thread_cpu_ns() - cpu_ns < 100 * PERIOD_NS {
            std::hint::spin_loop();
        }
        let samples = sampler.samples();
        let ran = &samples[slept_count..];
        assert!((70..=101).contains(&ran.len()), "{}", ran.len());
        assert!(ran.iter().any(|sample| sample.mode != SampledMode::Guest));
        let end_ns = clock::monotonic_ns();
        assert!(ran.iter().all(|sample| (begin_ns..=end_ns).contains(&sample.at_ns)));
    }
}
