//! Memory for values that live as long as the machine.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// Memory for one value, such as a driver that interrupts and tasks hand to each other.
pub struct Place<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: `put` returns the only reference, once.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    #[expect(clippy::new_without_default, reason = "it is made in statics only")]
    pub const fn new() -> Self {
        Place { is_taken: AtomicBool::new(false), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Stores a value for ever. Panics at the second call.
    #[expect(clippy::mut_from_ref, reason = "it is returned once")]
    pub fn put(&'static self, value: T) -> &'static mut T {
        assert!(!self.is_taken.swap(true, Ordering::Relaxed), "the place is taken");
        // SAFETY: the flag lets one caller get here, so no other reference exists.
        let place = unsafe { &mut *self.value.get() };
        place.write(value)
    }
}
