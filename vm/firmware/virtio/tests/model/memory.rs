//! Memory shared by driver and device under the model checker.

use std::ops::Range;

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use wirepath_virtio::Memory;

/// A barrier of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    Write,
    Read,
    Full,
}

/// Fields by their offset, each of its own width, at least two bytes apart.
pub(crate) struct Shared {
    fields: Vec<AtomicU64>,
    /// The barrier that is omitted.
    without: Option<Barrier>,
}

impl Shared {
    pub(crate) fn new(without: Option<Barrier>) -> Self {
        let fields = (0..crate::queue::BYTES.div_ceil(2)).map(|_| AtomicU64::new(0)).collect();
        Shared { fields, without }
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.fields[at / 2].load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        self.fields[at / 2].store(value, Ordering::Relaxed);
    }

    fn barrier(&self, barrier: Barrier, order: Ordering) {
        if self.without != Some(barrier) {
            fence(order);
        }
    }
}

impl Memory for Shared {
    fn len_bytes(&self) -> usize {
        2 * self.fields.len()
    }

    fn address(&self) -> u64 {
        0
    }

    fn read16(&self, at: usize) -> u16 {
        self.get(at) as u16
    }

    fn read32(&self, at: usize) -> u32 {
        self.get(at) as u32
    }

    fn write16(&self, at: usize, value: u16) {
        self.set(at, value.into());
    }

    fn write32(&self, at: usize, value: u32) {
        self.set(at, value.into());
    }

    fn write64(&self, at: usize, value: u64) {
        self.set(at, value);
    }

    fn with_bytes<T>(&mut self, _: Range<usize>, _: impl FnOnce(&mut [u8]) -> T) -> T {
        unreachable!("the model has no frames");
    }

    fn copy(&mut self, _: usize, _: usize, _: usize) {
        unreachable!("the model has no frames");
    }

    fn write_barrier(&self) {
        self.barrier(Barrier::Write, Ordering::Release);
    }

    fn read_barrier(&self) {
        self.barrier(Barrier::Read, Ordering::Acquire);
    }

    fn full_barrier(&self) {
        self.barrier(Barrier::Full, Ordering::SeqCst);
    }
}
