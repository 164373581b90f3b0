//! Counters of the machine that all namespaces share: CPU time, interrupts, idle states, quotas.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::tune::{System, irq_counts};

/// Adds the counters of the machine; what cannot be read is absent.
pub(super) fn add(system: &System, counters: &mut BTreeMap<String, u64>) {
    let read = |file: &str| system.read_host(file).unwrap_or_default();
    add_stat(&read("proc/stat"), counters);
    for (irq, row) in irq_counts(&read("proc/interrupts")) {
        for (cpu, count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
            counters.insert(format!("irq {irq} cpu{cpu}"), *count);
        }
    }
    for line in read("proc/vmstat").lines().filter(|line| line.starts_with("balloon_")) {
        if let Some((name, Ok(count))) = line.split_once(' ').map(|(n, c)| (n, c.parse())) {
            counters.insert(format!("vmstat {name}"), count);
        }
    }
    add_idle(system, counters);
    add_groups(system, counters);
}

/// Columns of a CPU in `/proc/stat`, in ticks.
///
/// Source: proc_stat(5).
const TIMES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// `cpu0 user 12`, and `cpu user` for all.
fn add_stat(text: &str, counters: &mut BTreeMap<String, u64>) {
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let mut words = line.split_whitespace();
        let cpu = words.next().unwrap_or_default();
        for (name, count) in TIMES.iter().zip(words) {
            counters.insert(format!("{cpu} {name}"), count.parse().unwrap_or(0));
        }
    }
}

/// Most CPUs and idle states that are read.
const CPUS_MAX: usize = 64;
const STATES_MAX: usize = 12;

fn add_idle(system: &System, counters: &mut BTreeMap<String, u64>) {
    for cpu in system.online_cpus().into_iter().take(CPUS_MAX) {
        for state in 0..STATES_MAX {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}/usage");
            let Ok(text) = system.read_host(&file) else { break };
            counters.insert(format!("idle cpu{cpu} state{state}"), text.parse().unwrap_or(0));
        }
    }
}

/// Folders of control groups with the CPU controller, of version 2 and 1.
const GROUPS: [&str; 3] = ["sys/fs/cgroup", "sys/fs/cgroup/cpu", "sys/fs/cgroup/unified"];
/// Most groups that are read.
const GROUPS_MAX: usize = 2000;

/// Groups that had to wait for a quota, by the path of their folder. Only those with a quota have periods.
fn add_groups(system: &System, counters: &mut BTreeMap<String, u64>) {
    let is_first = |folder: &str| system.read_host(&format!("{folder}/cgroup.procs")).is_ok();
    let Some(top) = GROUPS.into_iter().find(|folder| is_first(folder)) else { return };
    let top = system.host_path(top);
    let mut to_visit: Vec<PathBuf> = vec![top];
    let mut visited = 0;
    while let Some(folder) = to_visit.pop() {
        visited += 1;
        if visited > GROUPS_MAX {
            counters.insert("groups not read".to_owned(), 1);
            return;
        }
        let below = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        to_visit.extend(below.map(|entry| entry.path()));
        let text = std::fs::read_to_string(folder.join("cpu.stat")).unwrap_or_default();
        add_group(&folder.to_string_lossy(), &text, counters);
    }
}

/// `nr_periods 5` in each line; the time is `throttled_usec`, or `throttled_time` in nanoseconds.
fn add_group(folder: &str, text: &str, counters: &mut BTreeMap<String, u64>) {
    let rows: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.split_once(' ').and_then(|(n, c)| Some((n, c.parse().ok()?))))
        .collect();
    let count = |name: &str| rows.get(name).copied();
    let Some(periods) = count("nr_periods").filter(|periods| *periods > 0) else { return };
    let throttled = count("nr_throttled").unwrap_or(0);
    let waited_us =
        count("throttled_usec").or(count("throttled_time").map(|ns| ns / 1000)).unwrap_or(0);
    for (name, count) in
        [("nr_periods", periods), ("nr_throttled", throttled), ("throttled_usec", waited_us)]
    {
        counters.insert(format!("group {folder} {name}"), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cpus_and_quotas_of_both_versions_are_read() {
        let mut counters = BTreeMap::new();
        add_stat("cpu 1 2 3 4 5 6 7 8 0 0\ncpu1 0 0 0 9 0 0 5 2\nintr 5\n", &mut counters);
        add_group(
            "/a",
            "usage_usec 5\nnr_periods 9\nnr_throttled 4\nthrottled_usec 70\n",
            &mut counters,
        );
        add_group("/b", "nr_periods 9\nnr_throttled 4\nthrottled_time 8000\n", &mut counters);
        add_group("/free", "nr_periods 0\nnr_throttled 0\n", &mut counters);
        let of = |name: &str| counters.get(name).copied();
        assert_eq!(
            (of("cpu steal"), of("cpu1 softirq"), of("cpu1 idle")),
            (Some(8), Some(5), Some(9))
        );
        assert_eq!(
            (of("group /a throttled_usec"), of("group /b throttled_usec")),
            (Some(70), Some(8))
        );
        assert_eq!(of("group /free nr_periods"), None);
    }
}
