//! Timer samples of one thread: when it ran, and where.
//!
//! Source: perf_event_open(2), a software event, which needs no counter of the processor.

use std::io;

use crate::perf::SoftwareEvent;
use crate::perf_ring::{PerfRecord, PerfRing, records};

/// Bytes of records that are kept: 4,096 samples.
const RECORDS_BYTES: usize = 64 << 10;

/// Where the thread was when the timer fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledMode {
    User,
    Kernel,
    /// In a guest that it runs for KVM.
    Guest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModeSample {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    pub mode: SampledMode,
}

/// Samples a thread until it is dropped.
#[derive(Debug)]
pub struct ThreadSampler {
    ring: PerfRing,
    samples: Vec<ModeSample>,
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
        let ring = PerfRing::map(event.into_fd(), RECORDS_BYTES)?;
        Ok(ThreadSampler { ring, samples: Vec::new() })
    }

    /// Samples so far, in the order of their time. Of those since the call before, the first 4,096 are kept.
    pub fn samples(&mut self) -> &[ModeSample] {
        self.samples.extend(parse(&self.ring.take()));
        &self.samples
    }
}

/// Samples among the records, whose body is the time. Others tell of lost samples and of limits.
fn parse(bytes: &[u8]) -> Vec<ModeSample> {
    let samples = records(bytes).filter_map(|PerfRecord { kind, misc, body }| {
        let mode = match u32::from(misc) & libbpf_sys::PERF_RECORD_MISC_CPUMODE_MASK {
            libbpf_sys::PERF_RECORD_MISC_KERNEL => SampledMode::Kernel,
            libbpf_sys::PERF_RECORD_MISC_USER => SampledMode::User,
            libbpf_sys::PERF_RECORD_MISC_GUEST_KERNEL | libbpf_sys::PERF_RECORD_MISC_GUEST_USER => {
                SampledMode::Guest
            }
            _ => return None,
        };
        let at_ns = u64::from_ne_bytes(body.try_into().ok()?);
        (kind == libbpf_sys::PERF_RECORD_SAMPLE).then_some(ModeSample { at_ns, mode })
    });
    samples.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn parsed(words: &[u64]) -> Vec<ModeSample> {
        parse(&words.iter().copied().flat_map(u64::to_ne_bytes).collect::<Vec<u8>>())
    }

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
        assert_eq!(parsed(&words), expected.map(|(at_ns, mode)| ModeSample { at_ns, mode }));
        for wrong in [0, 4, 12] {
            assert_eq!(parsed(&[record(sample, 2, wrong), 10]), []);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "system calls")]
    fn a_thread_has_samples_while_it_computes_and_none_while_it_sleeps() {
        const PERIOD_NS: u64 = 1_000_000;
        let mut sampler = match ThreadSampler::start(crate::thread::id(), PERIOD_NS) {
            Ok(sampler) => sampler,
            Err(why) => return testkit::skip("bpf", why.to_string()),
        };
        let begin_ns = clock::monotonic_ns();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept_count = sampler.samples().len();
        assert!(slept_count <= 5, "{slept_count}");
        let spun_from_ns = clock::monotonic_ns();
        let cpu_ns = clock::thread_cpu_ns();
        while clock::thread_cpu_ns() - cpu_ns < 100 * PERIOD_NS {
            std::hint::spin_loop();
        }
        let samples = sampler.samples();
        let ran = &samples[slept_count..];
        let end_ns = clock::monotonic_ns();
        // The timer of the samples runs on when the host takes the CPU, which is no time of the thread.
        let most = (end_ns - spun_from_ns) / PERIOD_NS + 1;
        assert!((70..=most as usize).contains(&ran.len()), "{} of {most}", ran.len());
        assert!(ran.iter().any(|sample| sample.mode != SampledMode::Guest));
        assert!(ran.iter().all(|sample| (begin_ns..=end_ns).contains(&sample.at_ns)));
    }
}
