//! Mutation: an index is stored without releasing the slots that it gives away.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Relaxed;
    pub(super) const OBSERVE: Ordering = Ordering::Acquire;
}

#[path = "../../src/ring.rs"]
mod ring;

crate::scenario!();
