//! Times of single packets in single stages, which `explain.bpf.c` puts into a ring buffer.

use std::fmt::{self, Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use zerocopy::FromBytes;

use super::error::BpfError;
use super::explain::types;
use super::explain::{POINTS, Point};
use super::object::map_error;

/// The time of one packet in one stage; CLOCK_MONOTONIC, nanoseconds.
///
/// The next stage of the same packet begins at the point and in the nanosecond where this one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedStage {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// As the keys of [`super::explain::Seen::stages`], or [`super::explain::WAKE_UP`].
    pub from: Point,
    pub to: Point,
    /// CPU on which it ended.
    pub cpu: u32,
}

/// Reader of the ring buffer.
pub(super) struct SliceRing {
    ring: RingBuffer<'static>,
    read: Arc<Mutex<Vec<TimedStage>>>,
}

impl Debug for SliceRing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceRing").finish_non_exhaustive()
    }
}

impl SliceRing {
    pub(super) fn over(map: &MapHandle) -> Result<Self, BpfError> {
        let failed = |why| map_error("slices", "mapped", why);
        let read = Arc::new(Mutex::new(Vec::new()));
        let into = read.clone();
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |bytes: &[u8]| {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend(timed_stage(bytes));
                0
            })
            .map_err(failed)?;
        Ok(SliceRing { ring: builder.build().map_err(failed)?, read })
    }

    pub(super) fn drain(&mut self, into: &mut Vec<TimedStage>) {
        // The callback does not fail.
        let _count = self.ring.consume_raw();
        into.append(&mut self.read.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// `None` if the bytes are no slice: of another length, or of points that do not exist.
fn timed_stage(bytes: &[u8]) -> Option<TimedStage> {
    let raw = types::slice::read_from_bytes(bytes).ok()?;
    let point = |number: usize| Point::ALL.get(number).copied();
    let stage = raw.stage as usize;
    Some(TimedStage {
        begin_ns: raw.begin_ns,
        end_ns: raw.end_ns.max(raw.begin_ns),
        from: point(stage / POINTS)?,
        to: point(stage % POINTS)?,
        cpu: raw.cpu,
    })
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn a_slice_is_read_and_anything_else_is_left_out() {
        let slice = |stage| types::slice { begin_ns: 5, end_ns: 7, stage, cpu: 1 };
        let read = timed_stage(slice(6 * 16 + 9).as_bytes());
        let (from, to) = (Point::Received, Point::Ready);
        assert_eq!(read, Some(TimedStage { begin_ns: 5, end_ns: 7, from, to, cpu: 1 }));
        assert_eq!(timed_stage(slice(13 * 16).as_bytes()), None, "no such point");
        assert_eq!(timed_stage(&slice(0).as_bytes()[..20]), None);
    }
}
