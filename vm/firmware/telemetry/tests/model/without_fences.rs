//! Mutation: no fences order words and stamp.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    pub(super) fn fence(_: Ordering) {}
}

#[path = "../../src/slot.rs"]
mod slot;

crate::scenarios!();
