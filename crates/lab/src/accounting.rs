//! Placement of the ends of a lab on CPUs, and accounting of CPU time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use crate::{End, LabError};
use host::cpu::{Cores, CpuClock, CpuTime, CpuTimes};
use io::Local;
use model::{Cost, Hardware, Measurement, PathError, Trap};
use serde::{Deserialize, Serialize};
use sys::counters::HardwareCounts;
use sys::rusage::ThreadUsage;

/// Measures CPU time of the machine and of this process over one trial, including set-up.
pub struct Meter<'a> {
    clock: &'a CpuClock,
    cpus: Vec<usize>,
    cores: Cores,
    softirqs_before: Softirqs,
    before: CpuTimes,
    before_by_cpu: BTreeMap<u32, CpuTime>,
    own_before_ns: u64,
    begun: Instant,
}

pub struct Used {
    machine: CpuTimes,
    by_cpu: BTreeMap<u32, CpuTime>,
    cores: Cores,
    /// True if softirqs of frames ran on CPUs that no end was on.
    softirqs_elsewhere: bool,
    wall_ns: u64,
    own_ns: u64,
}

/// CPU time of the host of an end over one trial, as that end reports it.
///
/// Source: [`Meter`]; steal and others come in steps of 10 ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTime {
    /// Of the end's own process.
    pub own_ns: u64,
    /// Of the kernel's softirq threads; exact.
    pub softirq_threads_ns: u64,
    /// Time of the cores that the end could use.
    pub cores_ns: u64,
    /// Of other processes on these cores.
    pub others_cpu_ns: u64,
    /// Stolen from these cores by the hypervisor.
    pub steal_ns: u64,
}

/// Receive softirqs since boot.
struct Softirqs {
    by_cpu: BTreeMap<u32, u64>,
    /// Interrupts of RPS: at most one while its CPU still has frames, so no measure of their number.
    steered: u64,
}

impl Softirqs {
    fn now(clock: &CpuClock) -> Result<Self, PathError> {
        let by_cpu = clock.receive_softirqs().map_err(PathError::part)?;
        Ok(Softirqs { by_cpu, steered: clock.steering_interrupts().unwrap_or(0) })
    }

    /// True if any were steered, or more than a hundredth ran on other CPUs than `cpus`.
    fn ran_elsewhere(&self, before: &Softirqs, cpus: &[usize]) -> bool {
        let (mut all, mut elsewhere) = (0, 0);
        for (cpu, now) in &self.by_cpu {
            let count = now.saturating_sub(before.by_cpu.get(cpu).copied().unwrap_or(*now));
            all += count;
            elsewhere += if cpus.contains(&(*cpu as usize)) { 0 } else { count };
        }
        self.steered > before.steered || elsewhere * 100 > all
    }
}

/// CPUs on which programs run.
///
/// - `cpus`: empty for all that this thread may use.
pub fn usable_cpus(cpus: &[usize]) -> Result<Vec<usize>, PathError> {
    match cpus {
        [] => sys::affinity::allowed_cpus().map_err(PathError::part),
        cpus => Ok(cpus.to_vec()),
    }
}

/// Condition that the CPU figure of a trial lacks softirqs.
pub fn softirqs_missing() -> Trap {
    Trap {
        what:
            "CPU per packet leaves out softirqs of CPUs on which no end ran, such as those of an \
               interrupt or of RPS"
                .into(),
        advice: "compare the load of each CPU too: Linux gives softirq time in steps of 10 ms, on \
                 many kernels sampled, so it is not added"
            .into(),
    }
}

impl<'a> Meter<'a> {
    /// Starts the measurement of a trial.
    ///
    /// - `cpus`: CPUs that the ends may use; empty for all that this thread may use.
    pub fn start(clock: &'a CpuClock, cpus: &[usize]) -> Result<Self, PathError> {
        let cpus = usable_cpus(cpus)?;
        let cores = Cores::of(&cpus);
        let softirqs_before = Softirqs::now(clock)?;
        let (before, before_by_cpu) = clock.now_by_cpu().map_err(PathError::part)?;
        let own_before_ns = sys::clock::process_cpu_ns();
        let begun = Instant::now();
        Ok(Meter {
            clock,
            cpus,
            cores,
            softirqs_before,
            before,
            before_by_cpu,
            own_before_ns,
            begun,
        })
    }

    pub fn stop(self) -> Result<Used, PathError> {
        let own_ns = sys::clock::process_cpu_ns() - self.own_before_ns;
        let wall_ns = self.begun.elapsed().as_nanos() as u64;
        let (now, by_cpu) = self.clock.now_by_cpu().map_err(PathError::part)?;
        // A CPU that came online during the trial has no share.
        let by_cpu = by_cpu
            .into_iter()
            .filter_map(|(cpu, now)| Some((cpu, now.since(self.before_by_cpu.get(&cpu)?))))
            .collect();
        let softirqs = Softirqs::now(self.clock)?;
        Ok(Used {
            machine: now.since(&self.before),
            by_cpu,
            cores: self.cores,
            softirqs_elsewhere: softirqs.ran_elsewhere(&self.softirqs_before, &self.cpus),
            wall_ns,
            own_ns,
        })
    }
}

impl Used {
    /// Adds the CPU time of child processes to this process.
    pub fn with_children(self, children_ns: u64) -> Self {
        Used { own_ns: self.own_ns.saturating_add(children_ns), ..self }
    }

    /// The part that one end reports to the other.
    pub fn host_time(&self) -> HostTime {
        let mut m = Measurement::default();
        self.account(&mut m);
        HostTime {
            own_ns: self.own_ns,
            softirq_threads_ns: self.machine.softirq_threads_ns,
            cores_ns: m.cores_ns,
            others_cpu_ns: m.others_cpu_ns,
            steal_ns: m.steal_ns,
        }
    }

    /// Records the CPU time of the kernel's threads and of other processes.
    pub fn account(&self, m: &mut Measurement) {
        // Without the costs of the ends, the kernel's alone would mislead.
        if !m.costs.is_empty() {
            let softirq_ns = Some(self.machine.softirq_threads_ns);
            m.costs.insert("kernel".into(), Cost { softirq_ns, ..Cost::default() });
        }
        m.counters.insert("machine_wall_ns".into(), self.wall_ns);
        for (cpu, time) in &self.by_cpu {
            m.counters.insert(format!("machine_cpu{cpu}_unused_ns"), time.unused_ns);
        }
        let used = self.by_cpu.iter().filter(|(cpu, _)| self.cores.cpus.contains(cpu));
        let used: Vec<&CpuTime> = used.map(|(_, time)| time).collect();
        m.cores_ns = self.cores.count * self.wall_ns;
        m.steal_ns = used.iter().map(|time| time.steal_ns).sum();
        let known_ns: u64 = used.iter().map(|time| time.unused_ns + time.softirq_thread_ns).sum();
        m.others_cpu_ns =
            (used.len() as u64 * self.wall_ns).saturating_sub(known_ns.saturating_add(self.own_ns));
        if self.softirqs_elsewhere && !m.costs.is_empty() {
            m.traps.push(softirqs_missing());
        }
    }
}

impl HostTime {
    /// Adds the time of the far end's host to a measurement that has that of the near end's.
    pub fn account_far(&self, m: &mut Measurement) {
        // More than centuries, which only a broken end reports, would overflow sums.
        let softirq_ns = Some(self.softirq_threads_ns.min(1 << 53));
        m.costs.insert("far-kernel".into(), Cost { softirq_ns, ..Cost::default() });
        m.cores_ns = m.cores_ns.saturating_add(self.cores_ns);
        m.others_cpu_ns = m.others_cpu_ns.saturating_add(self.others_cpu_ns);
        m.steal_ns = m.steal_ns.saturating_add(self.steal_ns);
    }
}

/// CPUs of the two ends of a trial; an empty list for any.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    pub near: Vec<usize>,
    pub far: Vec<usize>,
}

impl Placement {
    /// CPUs of both ends; empty for any.
    pub fn both(&self) -> Vec<usize> {
        if self.near.is_empty() || self.far.is_empty() {
            Vec::new()
        } else {
            [&self.near[..], &self.far].concat()
        }
    }
}

/// Engine settings for an end of a lab.
///
/// - `ip`, `port`: of the end, or of a multicast group.
pub fn local(end: &End, ip: impl Into<IpAddr>, port: u16) -> Local {
    Local {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        mtu_bytes: end.mtu_bytes,
        queue: 0,
        queues: end.queues,
        mac: end.mac,
        ip: ip.into(),
        addresses: Vec::new(),
        port,
    }
}

/// Moves the calling thread into the namespace of an end and onto its CPUs.
///
/// - `cpus`: empty for any.
pub fn settle(end: &End, cpus: &[usize]) -> Result<(), LabError> {
    end.netns.enter().map_err(|source| LabError::Enter { source })?;
    if cpus.is_empty() {
        return Ok(());
    }
    let pinned = sys::affinity::pin_to(cpus);
    pinned.map_err(|source| LabError::Pin { cpus: cpus.to_vec(), source })
}

/// CPU time of one thread as the cost of an end, without system call counts.
pub fn cost_of(used: &ThreadUsage) -> Cost {
    Cost {
        user_ns: used.user_ns,
        system_ns: used.system_ns,
        context_switch_count: used.context_switch_count,
        hardware: used.hardware.map(hardware),
        ..Cost::default()
    }
}

/// Counts of the processor as part of a cost.
pub(crate) fn hardware(counts: HardwareCounts) -> Hardware {
    let HardwareCounts { instruction_count, cycle_count, llc_miss_count, tlb_miss_count } = counts;
    Hardware { instruction_count, cycle_count, llc_miss_count, tlb_miss_count }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_NS: u64 = 1_000_000_000;

    /// 64 CPUs, of which `hogs` work for others; the ends keep CPUs 0 and 1 busy for half of the time.
    fn measured(hogs: std::ops::Range<u32>) -> Measurement {
        let used = Used {
            machine: CpuTimes::default(),
            by_cpu: (0..64)
                .map(|cpu| {
                    let own_ns = if cpu < 2 { WALL_NS / 2 } else { 0 };
                    let unused_ns = if hogs.contains(&cpu) { 0 } else { WALL_NS - own_ns };
                    (cpu, CpuTime { unused_ns, ..CpuTime::default() })
                })
                .collect(),
            // Cores of two CPUs: 0 and 32, 1 and 33.
            cores: Cores { cpus: [0, 1, 32, 33].into(), count: 2 },
            softirqs_elsewhere: false,
            wall_ns: WALL_NS,
            own_ns: WALL_NS,
        };
        let mut m = Measurement::default();
        used.account(&mut m);
        m
    }

    #[test]
    fn others_count_on_the_cores_in_use_and_nowhere_else() {
        assert_eq!(measured(0..0).cores_ns, 2 * WALL_NS);
        assert_eq!(measured(0..16).others_cpu_ns, WALL_NS, "what the ends left of their CPUs");
        assert_eq!(measured(32..48).others_cpu_ns, 2 * WALL_NS, "both siblings");
        assert_eq!(measured(2..18).others_cpu_ns, 0, "other cores");
    }

    fn softirqs(counts: [u64; 3], steered: u64) -> Softirqs {
        Softirqs { by_cpu: (0..).zip(counts).collect(), steered }
    }

    #[test]
    fn softirqs_of_other_cpus_and_of_steering_are_noticed() {
        let before = softirqs([100, 100, 100], 5);
        let elsewhere = |counts, steered| softirqs(counts, steered).ran_elsewhere(&before, &[0, 1]);
        assert!(!elsewhere([1100, 600, 105], 5), "a few of other work");
        assert!(elsewhere([1100, 600, 200], 5));
        assert!(elsewhere([1100, 600, 100], 6));
        assert!(!elsewhere([100, 100, 100], 5), "none at all");
    }
}
