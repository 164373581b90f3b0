//! A guest that runs to its end.

use std::time::Duration;

use super::vmm::{self, End, Outcome, Receiver, Sender, Snapshot, Spec};
use crate::path::PathError;
use crate::text::chain;

/// Memory of a guest.
pub(super) const RAM_BYTES: usize = 32 << 20;
/// Descriptors of both rings, as a power of two: a TCP window fits, and their buffers into a cache.
pub(super) const RING_LOG2: u64 = 7;
/// Beyond the measured part, for a guest that boots and drains: a guard.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a guest until it is done; what its measured part showed.
pub(super) fn run_guest(
    spec: &Spec<'_>,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    patience: Duration,
) -> Result<Snapshot, PathError> {
    let failed = |why: String| PathError::End { end: "guest".into(), why };
    let running = vmm::start(spec, sender, receiver).map_err(PathError::part)?;
    let done = running.wait(patience);
    let Outcome { end, measured, .. } = running.stop().map_err(|e| failed(chain(&e)))?;
    match (end, measured) {
        (End::Done, Some(measured)) => Ok(measured),
        (End::Done, None) => Err(failed("it measured nothing".into())),
        (_, _) if !done => Err(failed("it did not come to its end in time".into())),
        (end, _) => Err(failed(format!("it ended by {end:?}"))),
    }
}
