//! Throttling and steal, which the kernel counts and does not trace.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::cause::{Around, Delay};
use crate::cpu;

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
    /// Of a thread of this process.
    pub(super) fn of(thread: u32) -> HostState {
        let groups = fs::read_to_string(format!("/proc/self/task/{thread}/cgroup"));
        let groups = groups.unwrap_or_default();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let files = stat_files(&groups, &mounts);
        HostState {
            groups: files.into_iter().filter(|file| file.exists()).collect(),
            samples: VecDeque::with_capacity(SAMPLES_MAX),
        }
    }

    pub(super) fn sample(&mut self, at_ns: u64) {
        let texts = self.groups.iter().filter_map(|file| fs::read_to_string(file).ok());
        let throttled_ns = texts.filter_map(|text| throttled_ns(&text)).sum();
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let stolen_ns = cpu::parse_stat(&stat, 0).map_or(0, |times| times.steal_ns);
        self.samples.push_back(Sample { at_ns, throttled_ns, stolen_ns });
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

/// `cpu.stat` of each group of a process that may have a quota, in both versions of the hierarchy.
///
/// Source: cgroups(7), `/proc/PID/cgroup` and `mountinfo`.
fn stat_files(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let is_unified = controllers.is_empty();
        if !is_unified && !controllers.split(',').any(|one| one == "cpu") {
            continue;
        }
        let Some(mount) = mounts.lines().find_map(|line| mount_of(line, is_unified)) else {
            continue;
        };
        let folder = mount.join(path.trim_start_matches('/'));
        let up_to_mount = folder.ancestors().take_while(|above| above.starts_with(&mount));
        files.extend(up_to_mount.map(|above| above.join("cpu.stat")));
    }
    files
}

/// Mount point of a line of `mountinfo`, if it is the hierarchy asked for.
fn mount_of(line: &str, is_unified: bool) -> Option<PathBuf> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let found = match kind.next()? {
        "cgroup2" => is_unified,
        "cgroup" => !is_unified && kind.nth(1)?.split(',').any(|option| option == "cpu"),
        _ => false,
    };
    found.then(|| Path::new(place.split(' ').nth(4).unwrap_or_default()).to_owned())
}

/// Source: Linux, Documentation/admin-guide/cgroup-v2.rst (microseconds), and
/// Documentation/scheduler/sched-bwc.rst (version 1, nanoseconds).
fn throttled_ns(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", us) => us.parse::<u64>().ok()?.checked_mul(1000),
        ("throttled_time", ns) => ns.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        25 20 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
        26 20 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_of_both_versions_are_read_up_to_their_roots() {
        let files = stat_files("5:cpu,cpuacct:/a/b\n4:memory:/m\n0::/u\n", MOUNTS);
        let expected = ["cpu/a/b", "cpu/a", "cpu", "unified/u", "unified"];
        let expected: Vec<PathBuf> =
            expected.iter().map(|at| format!("/sys/fs/cgroup/{at}/cpu.stat").into()).collect();
        assert_eq!(files, expected);
    }

    #[test]
    fn both_versions_count_throttled_time() {
        assert_eq!(throttled_ns("nr_periods 1\nthrottled_usec 7\n"), Some(7000));
        assert_eq!(throttled_ns("nr_throttled 1\nthrottled_time 7\n"), Some(7));
        assert_eq!(throttled_ns("nr_periods 1\n"), None);
    }

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
