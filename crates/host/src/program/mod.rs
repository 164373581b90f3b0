//! A running program: where and how its threads run, what they wait for, and what each datagram costs them.
//!
//! [`ProgramWatch`] reads a process twice, and its sockets and waiting threads in between; [`Program`] is the
//! difference. Nothing of the process is changed, and no thread is stopped.

mod calls;
mod find;
mod group;
mod sample;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub use calls::{Calls, Writes};
pub use find::{
    listeners, owners, parent, process_of_port, process_of_unit, processes, socket_inodes,
};
pub use group::{GroupSample, own_group};
pub(crate) use group::{stat_files, throttled_ns};
pub use sample::{ProgramSample, ThreadSample};
pub use watch::{ProgramWatch, Seen, SocketSeen};

use crate::cpu::Scheduled;

/// Time in which [`busiest_thread`] compares threads.
const BUSY_WINDOW: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    #[error("no process {pid}; `ps` lists their numbers")]
    None { pid: u32 },
    #[error("process {pid} ended while it was examined")]
    Ended { pid: u32 },
    #[error("cannot read {}", file.display())]
    Read {
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "no program has a UDP socket or a TCP listener at port {port} there; `ss -lnup` and `ss -lntp` list them"
    )]
    NoOwner { port: u16 },
    #[error("port {port} is in use there, by a process that may not be inspected; run as root")]
    Hidden { port: u16 },
    #[error("this host was not started by systemd, so it has no unit {unit}; give --pid or --port")]
    NoSystemd { unit: String },
    #[error(
        "no running unit {unit}: systemd has no control group of that name with a process; `systemctl status {unit}` says why"
    )]
    NoUnit { unit: String },
}

/// A process between two samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// State at the second sample.
    pub now: ProgramSample,
    pub window: Duration,
    /// Increase of each thread's counters; those that began or ended meanwhile are missing.
    pub grown: BTreeMap<u32, ThreadGrowth>,
    /// Increase of each group of [`ProgramSample::groups`]: periods, and time.
    pub throttled: Vec<(u64, Duration)>,
    /// System calls; or the reason why they were not counted.
    pub calls: Result<Calls, String>,
    pub seen: Seen,
}

/// Increase of a thread's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadGrowth {
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub forced_switches: u64,
    pub scheduled: Scheduled,
}

impl ThreadGrowth {
    fn between(before: &ThreadSample, after: &ThreadSample) -> ThreadGrowth {
        ThreadGrowth {
            minor_faults: after.minor_faults.saturating_sub(before.minor_faults),
            major_faults: after.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: after.voluntary_switches.saturating_sub(before.voluntary_switches),
            forced_switches: after.forced_switches.saturating_sub(before.forced_switches),
            scheduled: after.scheduled.since(&before.scheduled),
        }
    }

    /// Activity by which the busiest thread is found: time first, then switches of one that runs for microseconds.
    fn weight(&self) -> (u64, u64) {
        let Scheduled { run_ns, wait_ns } = self.scheduled;
        (run_ns + wait_ns, self.voluntary_switches + self.forced_switches)
    }
}

impl Program {
    /// - `calls`, `seen`: of the time between both samples.
    ///
    /// Errors: [`ProgramError::Ended`] for samples of different processes.
    pub fn between(
        before: &ProgramSample,
        after: ProgramSample,
        calls: Result<Calls, String>,
        seen: Seen,
    ) -> Result<Program, ProgramError> {
        if !after.is_same_process(before) {
            return Err(ProgramError::Ended { pid: before.pid });
        }
        let grown = after.threads.iter().filter_map(|(id, thread)| {
            Some((*id, ThreadGrowth::between(before.threads.get(id)?, thread)))
        });
        let throttled = after.groups.iter().map(|group| {
            let earlier = before.groups.iter().find(|other| other.folder == group.folder);
            let (count, ns) = earlier.map_or((group.throttled_count, group.throttled_ns), |one| {
                (one.throttled_count, one.throttled_ns)
            });
            let time_ns = group.throttled_ns.saturating_sub(ns);
            (group.throttled_count.saturating_sub(count), Duration::from_nanos(time_ns))
        });
        Ok(Program {
            window: Duration::from_nanos(after.at_ns.saturating_sub(before.at_ns)),
            grown: grown.collect(),
            throttled: throttled.collect(),
            calls,
            seen,
            now: after,
        })
    }

    /// The thread that received most datagrams, else the busiest one; with its counters.
    pub fn main_thread(&self) -> (u32, &ThreadSample, ThreadGrowth) {
        let receiver = self.calls.as_ref().ok().and_then(|calls| calls.receiver);
        let receiver = receiver.filter(|id| self.grown.contains_key(id));
        let busiest = self.grown.iter().max_by_key(|(_, grown)| grown.weight()).map(|(id, _)| *id);
        let id = receiver.or(busiest).filter(|id| self.now.threads.contains_key(id));
        let id = id.or(self.now.threads.keys().next().copied()).unwrap_or(self.now.pid);
        (id, &self.now.threads[&id], self.grown.get(&id).copied().unwrap_or_default())
    }

    /// `receiver (process 4711)`, with the thread's name if that is another one.
    pub fn title(&self) -> String {
        let ProgramSample { pid, name, threads, .. } = &self.now;
        let (id, thread, _) = self.main_thread();
        if threads.len() > 1 && id != *pid {
            format!("thread {id} ({}) of {name} (process {pid})", thread.name)
        } else {
            format!("{name} (process {pid})")
        }
    }

    /// The one CPU that the main thread is bound to; `None` if it may use several.
    pub fn pinned_to(&self) -> Option<usize> {
        match self.main_thread().1.allowed.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }

    /// A count of the window as one of a second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.window.as_secs_f64().max(1e-9)
    }

    /// A time of the window as a share of it.
    pub fn share(&self, ns: u64) -> f64 {
        ns as f64 / (self.window.as_nanos() as f64).max(1.0)
    }

    /// Datagrams that receive calls returned in the window; 0 if calls were not counted.
    pub fn datagram_count(&self) -> u64 {
        self.calls.as_ref().map_or(0, |calls| calls.datagram_count)
    }
}

/// The busiest thread of a process within a short window, with its title; the thread itself if `pid` is that of a
/// thread that is not its process's first.
///
/// Errors: those of [`ProgramSample::take`]; [`ProgramError::Ended`].
pub fn busiest_thread(pid: u32) -> Result<(u32, String), ProgramError> {
    let before = ProgramSample::take(pid)?;
    if before.leader != pid {
        let name = before.threads.get(&pid).map_or("", |thread| thread.name.as_str());
        return Ok((pid, format!("thread {pid} ({name}) of process {}", before.leader)));
    }
    std::thread::sleep(BUSY_WINDOW);
    let after = ProgramSample::take(pid).map_err(|_| ProgramError::Ended { pid })?;
    let not_counted = Err(String::new());
    let program = Program::between(&before, after, not_counted, Seen::default())?;
    Ok((program.main_thread().0, program.title()))
}

/// Name of a scheduling class.
///
/// Source: sched(7).
pub fn policy_name(policy: i32) -> &'static str {
    match policy {
        libc::SCHED_OTHER => "SCHED_OTHER",
        libc::SCHED_FIFO => "SCHED_FIFO",
        libc::SCHED_RR => "SCHED_RR",
        libc::SCHED_BATCH => "SCHED_BATCH",
        libc::SCHED_IDLE => "SCHED_IDLE",
        6 => "SCHED_DEADLINE",
        _ => "another class",
    }
}
