//! Mutation: the other side's index is read without acquiring the slots that it gives.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const OBSERVE: Ordering = Ordering::Relaxed;
}

#[path = "../../src/ring.rs"]
mod ring;

crate::scenario!();
