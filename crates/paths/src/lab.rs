//! What sessions of all paths share: where the two ends of a lab run, and the account of CPU time.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use host::cpu::{CpuClock, CpuTimes};
use host::lab::End;
use io::Local;
use model::{Cost, Measurement};

use crate::path::PathError;

/// CPU time of the machine and of ourselves over one trial, set-up included.
pub(crate) struct Meter<'a> {
    clock: &'a CpuClock,
    before: CpuTimes,
    unused_before_ns: BTreeMap<u32, u64>,
    own_before_ns: u64,
    begun: Instant,
}

/// What a [`Meter`] saw.
pub(crate) struct Used {
    machine: CpuTimes,
    unused_ns: BTreeMap<u32, u64>,
    wall_ns: u64,
    own_ns: u64,
}

impl<'a> Meter<'a> {
    pub(crate) fn start(clock: &'a CpuClock) -> Result<Self, PathError> {
        let (before, unused_before_ns) = clock.now_by_cpu().map_err(PathError::part)?;
        let own_before_ns = io::clock::process_cpu_ns();
        Ok(Meter { clock, before, unused_before_ns, own_before_ns, begun: Instant::now() })
    }

    pub(crate) fn stop(self) -> Result<Used, PathError> {
        let own_ns = io::clock::process_cpu_ns() - self.own_before_ns;
        let wall_ns = self.begun.elapsed().as_nanos() as u64;
        let (now, mut unused_ns) = self.clock.now_by_cpu().map_err(PathError::part)?;
        // A CPU that came meanwhile has no share.
        unused_ns.retain(|cpu, ns| match self.unused_before_ns.get(cpu) {
            Some(before_ns) => {
                *ns = ns.saturating_sub(*before_ns);
                true
            }
            None => false,
        });
        Ok(Used { machine: now.since(&self.before), unused_ns, wall_ns, own_ns })
    }
}

impl Used {
    /// Counts what child processes used as ours.
    pub(crate) fn with_children(self, children_ns: u64) -> Self {
        Used { own_ns: self.own_ns + children_ns, ..self }
    }

    /// Enters what the kernel's own threads and everybody else used meanwhile.
    pub(crate) fn account(&self, m: &mut Measurement) {
        // Where nobody's cost is told, the kernel's alone would mislead.
        if !m.costs.is_empty() {
            let softirq_ns = Some(self.machine.softirq_threads_ns);
            m.costs.insert("kernel".into(), Cost { softirq_ns, ..Cost::default() });
        }
        m.counters.insert("machine_wall_ns".into(), self.wall_ns);
        for (cpu, ns) in &self.unused_ns {
            m.counters.insert(format!("machine_cpu{cpu}_unused_ns"), *ns);
        }
        m.steal_ns = self.machine.steal_ns;
        m.others_cpu_ns = self.machine.others_ns(self.own_ns);
    }
}

/// Waits until a receiver's count has come to `whole`, has stood still for `grace`, or `most` is
/// over.
pub(crate) fn drain(received_count: &AtomicU64, whole: u64, grace: Duration, most: Duration) {
    let begun = Instant::now();
    let mut last = (received_count.load(Ordering::Relaxed), begun);
    while begun.elapsed() < most && last.0 < whole && last.1.elapsed() < grace {
        thread::sleep(Duration::from_millis(1));
        let now = received_count.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
}

/// How the two ends of a trial are placed; an empty list for anywhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    pub(crate) near: Vec<usize>,
    pub(crate) far: Vec<usize>,
}

/// An end of a lab as an engine wants it, with an address and a port of its own or a group's.
pub(crate) fn local(end: &End, ip: Ipv4Addr, port: u16) -> Local {
    Local {
        ifindex: end.ifindex,
        ifname: end.ifname.clone(),
        mtu_bytes: end.mtu_bytes,
        queue: 0,
        queues: end.queues,
        mac: end.mac,
        ip,
        port,
    }
}

/// Prepares the calling thread for one end: namespace, CPUs.
pub(crate) fn settle(end: &End, cpus: &[usize]) -> Result<(), String> {
    end.netns.enter().map_err(|e| format!("entering the lab: {e}"))?;
    if cpus.is_empty() {
        return Ok(());
    }
    io::affinity::pin_to(cpus).map_err(|e| format!("pinning to CPU {cpus:?}: {e}"))
}
