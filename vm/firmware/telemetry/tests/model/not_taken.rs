//! Mutation: a recorder claims a slot that another has claimed.

mod sync {
    pub(super) use loom::sync::atomic::{Ordering, fence};

    pub(super) struct AtomicU64(loom::sync::atomic::AtomicU64);

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> Self {
            AtomicU64(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(super) fn load(&self, order: Ordering) -> u64 {
            self.0.load(order)
        }

        pub(super) fn store(&self, value: u64, order: Ordering) {
            self.0.store(value, order);
        }

        pub(super) fn compare_exchange(
            &self,
            old: u64,
            new: u64,
            _: Ordering,
            order: Ordering,
        ) -> Result<u64, u64> {
            self.0.store(new, order);
            Ok(old)
        }
    }
}

#[path = "../../src/slot.rs"]
mod slot;

crate::scenarios!();
