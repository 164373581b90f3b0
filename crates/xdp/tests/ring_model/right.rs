//! The rings as they are.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const OBSERVE: Ordering = Ordering::Acquire;
}

#[path = "../../src/ring.rs"]
mod ring;

crate::scenario!();
