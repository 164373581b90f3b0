//! Resources used by a program.

use model::Cost;
use serde::{Deserialize, Serialize};
use sys::counters::{GroupCounters, HardwareCounts};

use crate::accounting::hardware;

use super::{Program, ProgramError, processes};

/// Source of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CountedBy {
    /// By the kernel, for the whole control group.
    Cgroup,
    /// By rusage of ended processes and /proc of living ones. CPU time lacks children of a program that
    /// ignores SIGCHLD; memory is that of the largest process.
    Rusage,
}

/// Resources used by all processes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
    /// Voluntary and involuntary, of ended processes and living threads.
    pub context_switch_count: u64,
    /// `None` if it is below the size of this process, which is all that rusage can tell then.
    pub memory_bytes_max: Option<u64>,
    pub counted_by: CountedBy,
    /// Source of `memory_bytes_max`: `Rusage` without the memory controller.
    pub memory_counted_by: CountedBy,
    /// Counts of the processor; `None` without a control group, and where the kernel gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareCounts>,
}

impl Usage {
    /// CPU time in user mode and in the kernel.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// CPU time and context switches as the cost of an end.
    pub fn cost(&self) -> Cost {
        Cost {
            user_ns: self.user_ns,
            system_ns: self.system_ns,
            context_switch_count: self.context_switch_count,
            hardware: self.hardware.map(hardware),
            ..Cost::default()
        }
    }

    /// Difference from `earlier` to `self`; the memory is that of the whole time.
    pub fn since(&self, earlier: &Usage) -> Usage {
        let count = |of: fn(&Usage) -> u64| of(self).saturating_sub(of(earlier));
        Usage {
            user_ns: count(|usage| usage.user_ns),
            system_ns: count(|usage| usage.system_ns),
            context_switch_count: count(|usage| usage.context_switch_count),
            hardware: self.hardware.zip(earlier.hardware).map(|(now, before)| now.since(&before)),
            ..*self
        }
    }
}

/// Readings until two agree on the processes that have ended; one that ends in between is counted twice
/// or not at all.
const READINGS_MAX: usize = 5;

impl Program {
    pub fn usage(&self) -> Result<Usage, ProgramError> {
        let mut reaped = self.reaped()?;
        let mut living = Default::default();
        for _ in 0..READINGS_MAX {
            let pids = self.processes();
            living = processes::living(&pids);
            let now = self.reaped()?;
            let is_same = now.process_count == reaped.process_count;
            reaped = now;
            if is_same && pids == self.processes() {
                break;
            }
        }
        let of_processes = living.resident_bytes_max.max(self.state().resident_bytes_max);
        self.state().resident_bytes_max = of_processes;
        let (user_ns, system_ns, counted_by) = match &self.cgroup {
            Some(cgroup) => {
                let (user_ns, system_ns) = cgroup.cpu_ns().map_err(|source| {
                    let name = self.name.clone();
                    ProgramError::Io { name, what: "read the CPU time", source }
                })?;
                (user_ns, system_ns, CountedBy::Cgroup)
            }
            None => (
                reaped.user_ns + living.user_ns,
                reaped.system_ns + living.system_ns,
                CountedBy::Rusage,
            ),
        };
        let of_group = self.cgroup.as_ref().and_then(|cgroup| cgroup.memory_bytes_max());
        // A forked process has the size of its parent until it executes a program, and rusage keeps that.
        let of_ended = reaped.resident_bytes_max;
        let of_ended = if of_ended > self.resident_floor_bytes { of_ended } else { 0 };
        let of_processes = Some(of_processes.max(of_ended)).filter(|bytes| *bytes > 0);
        Ok(Usage {
            user_ns,
            system_ns,
            context_switch_count: reaped.context_switch_count + living.context_switch_count,
            memory_bytes_max: of_group.or(of_processes),
            counted_by,
            memory_counted_by: match of_group {
                Some(_) => CountedBy::Cgroup,
                None => CountedBy::Rusage,
            },
            hardware: self.counters.as_ref().and_then(GroupCounters::read),
        })
    }

    fn reaped(&self) -> Result<sys::supervisor::Reaped, ProgramError> {
        let mut state = self.state();
        if let Some((_, reaped)) = state.empty {
            return Ok(reaped);
        }
        let reaped = self.supervisor.reaped(|event| state.apply(event));
        reaped
            .map_err(|source| {
                let name = self.name.clone();
                ProgramError::Io { name, what: "count the resources", source }
            })?
            .ok_or_else(|| ProgramError::Lost { name: self.name.clone() })
    }

    /// Keeps the largest size of its processes, which is lost with their end if no group counts it.
    pub(super) fn look_at_memory(&self) {
        if self.cgroup.as_ref().is_some_and(|cgroup| cgroup.memory_bytes_max().is_some()) {
            return;
        }
        let now = processes::resident_bytes_max(&self.processes());
        let mut state = self.state();
        state.resident_bytes_max = state.resident_bytes_max.max(now);
    }
}
