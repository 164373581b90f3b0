//! Indexes, slots and memory orderings of the rings. Separate from `ring.rs` so that the
//! model checker can replace them, also by weaker orderings, under the same ring source
//! (`tests/ring_model`).

use std::cell::UnsafeCell;

pub(super) use std::sync::atomic::{AtomicU32, Ordering};

/// Store of an index: a thread that reads it sees all accesses to the released slots as done.
pub(super) const PUBLISH: Ordering = Ordering::Release;
/// Load of the other side's index: accesses to the slots that it releases come after.
pub(super) const OBSERVE: Ordering = Ordering::Acquire;

#[repr(transparent)]
pub(super) struct Cell<T>(UnsafeCell<T>);

impl<T: Copy> Cell<T> {
    /// # Safety
    /// The caller owns the slot: the other side does not access it until it is released.
    pub(super) unsafe fn write(&self, entry: T) {
        // SAFETY: the caller owns the slot.
        unsafe { self.0.get().write(entry) };
    }

    /// # Safety
    /// As for `write`, and the other side has written an entry.
    pub(super) unsafe fn read(&self) -> T {
        // SAFETY: the caller owns the slot.
        unsafe { self.0.get().read() }
    }
}
