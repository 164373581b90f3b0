//! CPU and waiting time of a machine's threads.

use std::collections::BTreeSet;

use host::program::ProgramSample;

/// Task of a thread of the VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadRole {
    /// The process's first thread. Of QEMU it moves frames between wire and rings.
    Main,
    /// Runs a virtual CPU.
    Vcpu,
    /// An I/O thread of QEMU.
    Io,
    Other,
}

impl ThreadRole {
    pub(crate) fn name(self) -> &'static str {
        match self {
            ThreadRole::Main => "main",
            ThreadRole::Vcpu => "vcpu",
            ThreadRole::Io => "io",
            ThreadRole::Other => "other",
        }
    }
}

/// One thread between two samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadCounts {
    pub id: u32,
    pub name: String,
    pub role: ThreadRole,
    pub cpu_ns: u64,
    /// Time in which it was ready and another task ran.
    pub wait_ns: u64,
    /// Context switches: it slept or yielded.
    pub sleep_count: u64,
    /// Context switches: another task took its CPU.
    pub preemption_count: u64,
}

/// Differences between two samples. Threads that began meanwhile count from their start; those that ended are left
/// out, and counted in the second result.
///
/// - `vcpus`: threads that ran a virtual CPU, as far as it is known from KVM.
pub(crate) fn between(
    earlier: &ProgramSample,
    later: &ProgramSample,
    vcpus: &BTreeSet<u32>,
) -> (Vec<ThreadCounts>, usize) {
    let threads = later.threads.iter().map(|(&id, now)| {
        let before = earlier.threads.get(&id).cloned().unwrap_or_default();
        ThreadCounts {
            id,
            name: now.name.clone(),
            role: role(later.leader, id, &now.name, vcpus),
            cpu_ns: now.scheduled.run_ns.saturating_sub(before.scheduled.run_ns),
            wait_ns: now.scheduled.wait_ns.saturating_sub(before.scheduled.wait_ns),
            sleep_count: now.voluntary_switches.saturating_sub(before.voluntary_switches),
            preemption_count: now.forced_switches.saturating_sub(before.forced_switches),
        }
    });
    let ended = earlier.threads.keys().filter(|id| !later.threads.contains_key(id)).count();
    (threads.collect(), ended)
}

/// Source of the names: QEMU, accel/tcg, accel/kvm and iothread.c, with `-name …,debug-threads=on`.
fn role(leader: u32, id: u32, name: &str, vcpus: &BTreeSet<u32>) -> ThreadRole {
    if vcpus.contains(&id) || name.starts_with("CPU ") {
        ThreadRole::Vcpu
    } else if id == leader {
        ThreadRole::Main
    } else if name.starts_with("IO ") {
        ThreadRole::Io
    } else {
        ThreadRole::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_by_name_and_by_what_they_ran() {
        let vcpus = BTreeSet::from([9]);
        assert_eq!(role(1, 1, "qemu-system-x86", &vcpus), ThreadRole::Main);
        assert_eq!(role(1, 9, "qemu-system-x86", &vcpus), ThreadRole::Vcpu);
        assert_eq!(role(1, 3, "CPU 0/TCG", &vcpus), ThreadRole::Vcpu);
        assert_eq!(role(1, 4, "IO iothread0", &vcpus), ThreadRole::Io);
        assert_eq!(role(1, 5, "call_rcu", &vcpus), ThreadRole::Other);
    }

    #[test]
    fn own_thread_that_computes_has_cpu_time() {
        let earlier = ProgramSample::take(std::process::id()).unwrap();
        let clock = sys::clock::ThreadCpuClock::of_this_thread();
        let begun_ns = clock.read_ns();
        while clock.read_ns() - begun_ns < 20_000_000 {
            std::hint::spin_loop();
        }
        let later = ProgramSample::take(std::process::id()).unwrap();
        let (threads, _) = between(&earlier, &later, &BTreeSet::new());
        let own = threads.iter().find(|thread| thread.id == sys::thread::id()).unwrap();
        // The kernel adds the time of a running thread at its ticks: 10 ms apart at most.
        assert!(own.cpu_ns >= 10_000_000, "{own:?}");
    }
}
