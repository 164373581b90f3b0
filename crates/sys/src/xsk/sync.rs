//! What the rings are made of: indexes, slots, and the orderings that their proof rests on. Apart
//! from [`super::ring`] so that the model checker can put its own in their place, and weaker
//! orderings, and compile the very same rings over them (`tests/ring_model`).

use std::cell::UnsafeCell;

pub(super) use std::sync::atomic::{AtomicU32, Ordering};

/// How an index is stored: what was done to the slots that it gives away is seen by who sees it.
pub(super) const PUBLISH: Ordering = Ordering::Release;
/// How the other side's index is read: what is done to the slots that it gives comes after.
pub(super) const OBSERVE: Ordering = Ordering::Acquire;

/// A slot.
#[repr(transparent)]
pub(super) struct Cell<T>(UnsafeCell<T>);

impl<T: Copy> Cell<T> {
    /// # Safety
    /// The slot is ours: the other side neither reads nor writes it until it is given away.
    pub(super) unsafe fn write(&self, entry: T) {
        // SAFETY: nobody else touches it, says the caller.
        unsafe { self.0.get().write(entry) };
    }

    /// # Safety
    /// As for `write`, and the other side has put an entry in.
    pub(super) unsafe fn read(&self) -> T {
        // SAFETY: nobody else touches it, says the caller.
        unsafe { self.0.get().read() }
    }
}
