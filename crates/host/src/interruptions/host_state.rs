//! Throttling and steal, which the kernel counts and does not trace.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;

use super::cause::{Around, Delay};
use crate::cpu;
use crate::program::{stat_files, throttled_ns};

/// Samples kept: those of some seconds.
const SAMPLES_MAX: usize = 512;

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at_ns: u64,
    throttled_ns: u64,
    stolen_ns: u64,
}

/// Counters of one thread's control groups and of the CPUs, sampled in turn.
#[derive(Debug)]
pub(super) struct HostState {
    /// Files `cpu.stat` of its groups, inner ones first.
    groups: Vec<PathBuf>,
    samples: VecDeque<Sample>,
}

impl HostState {
    pub(super) fn of(thread: u32) -> HostState {
        HostState { groups: stat_files(thread), samples: VecDeque::with_capacity(SAMPLES_MAX) }
    }

    /// Returns the time that the hypervisor took from all CPUs since the sample before.
    pub(super) fn sample(&mut self, at_ns: u64) -> u64 {
        let texts = self.groups.iter().filter_map(|file| fs::read_to_string(file).ok());
        let throttled_ns = texts.filter_map(|text| throttled_ns(&text)).sum();
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let stolen_ns = cpu::parse_stat(&stat, 0).map_or(0, |times| times.steal_ns);
        let before_ns = self.samples.back().map_or(stolen_ns, |before| before.stolen_ns);
        self.samples.push_back(Sample { at_ns, throttled_ns, stolen_ns });
        stolen_ns.saturating_sub(before_ns)
    }

    /// Increase of the counters over a delay, and over the one sample that follows it.
    pub(super) fn around(&self, delay: &Delay) -> Around {
        let before = self.samples.iter().rev().find(|sample| sample.at_ns <= delay.begin_ns);
        let before = before.or(self.samples.front()).copied().unwrap_or_default();
        let after = self.samples.iter().filter(|sample| sample.at_ns >= delay.end_ns).nth(1);
        let after = after.or(self.samples.back()).copied().unwrap_or(before);
        Around {
            throttled_ns: after.throttled_ns.saturating_sub(before.throttled_ns),
            stolen_ns: after.stolen_ns.saturating_sub(before.stolen_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_belongs_to_the_delay_up_to_the_sample_after_it() {
        let sample = |at_ns, throttled_ns| Sample { at_ns, throttled_ns, stolen_ns: 0 };
        let samples = [sample(10, 0), sample(20, 0), sample(30, 5), sample(40, 7), sample(50, 100)];
        let state = HostState { groups: Vec::new(), samples: samples.into() };
        let delay = |begin_ns, end_ns| Delay { begin_ns, end_ns, is_behind: false };
        assert_eq!(state.around(&delay(22, 29)).throttled_ns, 7);
        assert_eq!(state.around(&delay(41, 60)).throttled_ns, 93);
    }
}
