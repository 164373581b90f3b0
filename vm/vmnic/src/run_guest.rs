//! Running a guest to its end.

use std::time::{Duration, Instant};

use host::kvm::GuestRam;
use host::text::chain;
use model::{Arm, PathError};
use vmm::{self, GuestEnd, GuestOutcome, GuestTask, Halves, Snapshot, Spec};

use super::switches;
use super::topology::MAC;
use super::vcpu_profile::{SampledShares, VcpuProfile};

/// Memory of a guest.
pub(super) const RAM_BYTES: usize = 32 << 20;
/// Descriptors of both rings, as a power of two: a TCP window fits, and the buffers fit into a cache.
pub(super) const RING_LOG2: u64 = 7;
/// Time limit beyond the measured part, for boot and drain.
pub(super) const BOOT_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval at which the waiting thread checks if this process itself was stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A check this late means that the process or the machine was stopped.
const STOPPED_MIN: Duration = Duration::from_secs(2);

/// The guest of an arm.
pub(super) fn spec<'a>(image: &'a [u8], arm: &Arm, task: GuestTask) -> Spec<'a> {
    let (switches, foreign_driver) = (switches::monitor_switches(arm), switches::is_foreign(arm));
    let task = GuestTask { foreign_driver, ..task };
    Spec { image, ram_bytes: RAM_BYTES, mac: MAC, task, switches }
}

/// A guest that ran to its end.
pub(super) struct Ran {
    /// Counters of its measured part.
    pub(super) measured: Snapshot,
    /// Of the measured part, by samples of the vCPU's thread; none where the kernel takes none.
    pub(super) sampled: SampledShares,
    /// CPU time of the monitor's process, from its start to its end.
    pub(super) total_ns: u64,
}

/// Waits for a guest. Time in which this process was stopped does not count. Returns true if the guest has ended, and the stopped time.
fn wait(running: &vmm::Running, patience: Duration) -> (bool, Duration) {
    let (mut waited, mut still) = (Duration::ZERO, Duration::ZERO);
    while waited < patience {
        let begun = Instant::now();
        let done = running.wait(CHECK_INTERVAL.min(patience - waited));
        let took = begun.elapsed();
        if took >= STOPPED_MIN {
            still += took;
        } else {
            waited += took;
        }
        if done {
            return (true, still);
        }
    }
    (false, still)
}

/// Runs a guest in a process of its own, where `open` opens its back end, until it is done. An error has the
/// state of the guest, the device and the monitor.
pub(super) fn run_guest(
    spec: &Spec<'_>,
    open: impl FnOnce(&GuestRam) -> Result<Halves, PathError>,
    patience: Duration,
) -> Result<Ran, PathError> {
    let running = vmm::start(spec, |ram| Ok(open(ram)?)).map_err(PathError::part)?;
    let profile = VcpuProfile::begin(running.pid());
    let (done, still) = wait(&running, patience);
    let (outcome, total_ns) = running.stop().map_err(|e| PathError::at("guest", chain(&e)))?;
    let GuestOutcome { end, measured, total, condition } = outcome;
    let why = match (end, measured) {
        (GuestEnd::Done, Some(measured)) => {
            let sampled = profile.map_or_else(Vec::new, |profile| profile.shares(&measured));
            return Ok(Ran { measured, sampled, total_ns });
        }
        (GuestEnd::Done, None) => "no measured part".to_owned(),
        (_, _) if !done => "it timed out".to_owned(),
        (end, _) => format!("it ended by {end:?}"),
    };
    let stopped = match still {
        Duration::ZERO => String::new(),
        still => format!("; this process was stopped for {:.1} s", still.as_secs_f64()),
    };
    let report = vmm::FailureReport { condition: &condition, total: &total };
    Err(PathError::at("guest", format!("{why}{stopped}\n{report}")))
}
