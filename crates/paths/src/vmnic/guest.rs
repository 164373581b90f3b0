//! A guest that runs to its end.

use std::time::{Duration, Instant};

use super::vmm::{self, End, Outcome, Receiver, Sender, Snapshot, Spec};
use crate::path::PathError;
use crate::text::chain;

/// Memory of a guest.
pub(super) const RAM_BYTES: usize = 32 << 20;
/// Descriptors of both rings, as a power of two: a TCP window fits, and their buffers into a cache.
pub(super) const RING_LOG2: u64 = 7;
/// Beyond the measured part, for a guest that boots and drains: a guard.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How often whoever waits looks whether this process itself stood still.
const PULSE: Duration = Duration::from_millis(100);
/// A pulse as late as this tells of a process that was stopped, or of a machine that was.
const STILL: Duration = Duration::from_secs(2);

/// Waits for a guest, of which the time is not counted that this process stood still: the guest
/// stood still with it. Returns whether it has ended, and that time.
fn wait(running: &vmm::Running, patience: Duration) -> (bool, Duration) {
    let (mut waited, mut still) = (Duration::ZERO, Duration::ZERO);
    while waited < patience {
        let begun = Instant::now();
        let done = running.wait(PULSE.min(patience - waited));
        let took = begun.elapsed();
        if took >= STILL {
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

/// Runs a guest until it is done; what its measured part showed. A failure tells how the guest, the
/// device and the monitor stood.
pub(super) fn run_guest(
    spec: &Spec<'_>,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    patience: Duration,
) -> Result<Snapshot, PathError> {
    let failed = |why: String| PathError::End { end: "guest".into(), why };
    let running = vmm::start(spec, sender, receiver).map_err(PathError::part)?;
    let (done, still) = wait(&running, patience);
    let outcome = running.stop().map_err(|e| failed(chain(&e)))?;
    let Outcome { end, measured, total, condition } = outcome;
    let why = match (end, measured) {
        (End::Done, Some(measured)) => return Ok(measured),
        (End::Done, None) => "it measured nothing".to_owned(),
        (_, _) if !done => "it did not come to its end in time".to_owned(),
        (end, _) => format!("it ended by {end:?}"),
    };
    let stood = match still {
        Duration::ZERO => String::new(),
        still => format!("; this process stood still for {:.1} s meanwhile", still.as_secs_f64()),
    };
    let told = vmm::Told { condition: &condition, total: &total };
    Err(failed(format!("{why}{stood}\n{told}")))
}
