//! The unmodified slot.

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../../src/slot.rs"]
mod slot;

crate::scenarios!();
