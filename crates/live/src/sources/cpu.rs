//! CPU time of all processes of a service.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::target::with_descendants;

/// Nanoseconds of a clock tick of /proc: 100 ticks a second on all architectures of Linux.
const TICK_NS: u64 = 10_000_000;

/// Cumulative CPU time of a service, whose processes come and go.
#[derive(Debug)]
pub(super) enum CpuTime {
    /// The kernel counts the control group.
    Cgroup(PathBuf),
    Ledger(Ledger),
}

impl CpuTime {
    pub(super) fn new(cgroup: Option<PathBuf>, roots: &[u32]) -> CpuTime {
        match cgroup {
            Some(folder) => CpuTime::Cgroup(folder),
            None => CpuTime::Ledger(Ledger::new(roots)),
        }
    }

    /// Nanoseconds; `None` if the group is gone.
    pub(super) fn read_ns(&mut self) -> Option<u64> {
        match self {
            CpuTime::Cgroup(folder) => {
                let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
                let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                us.trim().parse::<u64>().ok()?.checked_mul(1000)
            }
            CpuTime::Ledger(ledger) => Some(ledger.read_ns()),
        }
    }

    /// True if no process is left of those that were found.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self, CpuTime::Ledger(ledger) if ledger.members.is_empty())
    }

    /// Adds processes that are not descendants of those that are known.
    pub(super) fn add_roots(&mut self, roots: &[u32]) {
        if let CpuTime::Ledger(ledger) = self {
            ledger.roots.extend(roots);
        }
    }
}

/// CPU times of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    parent: u32,
    start_ticks: u64,
    /// Of its threads, ended ones included.
    own_ns: u64,
    /// Of children that ended and were waited for, with theirs.
    children_ns: u64,
}

/// Sum over processes that never falls.
///
/// A process that ends moves its time to its parent if that waits for it. Where it does not, the ledger keeps the time that
/// was read last.
#[derive(Debug)]
pub(super) struct Ledger {
    roots: BTreeSet<u32>,
    members: BTreeMap<u32, Times>,
    /// Of ended processes whose time no living one has.
    ended_ns: u64,
    highest_ns: u64,
}

impl Ledger {
    fn new(roots: &[u32]) -> Ledger {
        Ledger {
            roots: roots.iter().copied().collect(),
            members: BTreeMap::new(),
            ended_ns: 0,
            highest_ns: 0,
        }
    }

    fn read_ns(&mut self) -> u64 {
        let known: Vec<u32> = self.roots.iter().chain(self.members.keys()).copied().collect();
        let now: BTreeMap<u32, Times> = with_descendants(&known)
            .into_iter()
            .filter_map(|pid| Some((pid, times(pid)?)))
            .collect();
        self.advance(now);
        self.roots.retain(|pid| self.members.contains_key(pid));
        self.highest_ns
    }

    fn advance(&mut self, now: BTreeMap<u32, Times>) {
        let mut lost_by_parent = BTreeMap::<u32, u64>::new();
        for (pid, times) in &self.members {
            if !is_same_process(&now, *pid, times) {
                *lost_by_parent.entry(times.parent).or_default() +=
                    times.own_ns + times.children_ns;
            }
        }
        for (parent, lost_ns) in lost_by_parent {
            let before =
                self.members.get(&parent).filter(|times| is_same_process(&now, parent, times));
            let taken_ns = before.zip(now.get(&parent)).map_or(0, |(before, now)| {
                // Two clocks in ticks.
                match now.children_ns.saturating_sub(before.children_ns) {
                    0 => 0,
                    grown => grown + 2 * TICK_NS,
                }
            });
            self.ended_ns += lost_ns.saturating_sub(taken_ns);
        }
        self.members = now;
        let living_ns: u64 =
            self.members.values().map(|times| times.own_ns + times.children_ns).sum();
        self.highest_ns = self.highest_ns.max(living_ns + self.ended_ns);
    }
}

/// False if the process has ended, and its number is another one's.
fn is_same_process(now: &BTreeMap<u32, Times>, pid: u32, times: &Times) -> bool {
    now.get(&pid).is_some_and(|found| found.start_ticks == times.start_ticks)
}

/// `None` of a process that has ended.
///
/// Source: proc_pid_stat(5), clock_getcpuclockid(3).
fn times(pid: u32) -> Option<Times> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    if matches!(*fields.first()?, "X") {
        return None;
    }
    Some(Times {
        parent: field(4)?.try_into().ok()?,
        start_ticks: field(22)?,
        own_ns: sys::clock::cpu_ns_of(pid)
            .unwrap_or((field(14)? + field(15)?).saturating_mul(TICK_NS)),
        children_ns: (field(16)? + field(17)?).saturating_mul(TICK_NS),
    })
}

/// Time that all CPUs spent in interrupts, and in all, in ticks.
///
/// Source: proc_stat(5).
pub(super) fn interrupt_ticks() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
    // Guests' time is in the user's already.
    Some((ticks.get(5)? + ticks.get(6)?, ticks.iter().take(8).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times_ms(parent: u32, own_ms: u64, children_ms: u64) -> Times {
        let ns = 1_000_000;
        Times { parent, start_ticks: 7, own_ns: own_ms * ns, children_ns: children_ms * ns }
    }

    fn read(ledger: &mut Ledger, members: &[(u32, Times)]) -> u64 {
        ledger.advance(members.iter().copied().collect());
        ledger.highest_ns / 1_000_000
    }

    #[test]
    fn time_of_a_child_that_ends_is_counted_once() {
        let mut ledger = Ledger::new(&[1]);
        assert_eq!(read(&mut ledger, &[(1, times_ms(0, 100, 0)), (2, times_ms(1, 500, 0))]), 600);
        // Its parent waits for it: 20 ms more until its end.
        assert_eq!(read(&mut ledger, &[(1, times_ms(0, 110, 520))]), 630);
        assert_eq!(read(&mut ledger, &[(1, times_ms(0, 110, 520)), (3, times_ms(1, 300, 0))]), 930);
        // Its parent ignores its end.
        assert_eq!(read(&mut ledger, &[(1, times_ms(0, 120, 520))]), 940);
        // Another process has its number.
        let other = Times { start_ticks: 9, ..times_ms(0, 5, 0) };
        assert_eq!(read(&mut ledger, &[(1, other)]), 945);
        assert_eq!(read(&mut ledger, &[]), 945);
    }

    #[test]
    fn time_of_a_group_is_the_kernel_s() {
        let folder = tempfile::tempdir().unwrap();
        let mut cpu = CpuTime::new(Some(folder.path().to_owned()), &[]);
        assert_eq!(cpu.read_ns(), None, "the unit was stopped");
        std::fs::write(folder.path().join("cpu.stat"), "usage_usec 1500\nuser_usec 1\n").unwrap();
        assert_eq!(cpu.read_ns(), Some(1_500_000));
    }

    #[test]
    fn this_process_uses_time_and_the_machine_has_ticks() {
        let mut cpu = CpuTime::new(None, &[std::process::id()]);
        let before = cpu.read_ns().unwrap();
        let begun = sys::clock::thread_cpu_ns();
        while sys::clock::thread_cpu_ns() - begun < 30_000_000 {}
        assert!(cpu.read_ns().unwrap() - before >= 29_000_000);
        assert!(!cpu.is_ended());
        let (interrupts, all) = interrupt_ticks().unwrap();
        assert!(all > interrupts);
    }
}
