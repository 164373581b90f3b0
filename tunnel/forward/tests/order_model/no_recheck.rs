//! Mutation: no re-check after the egress lock is released.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const RECHECK: bool = false;
    pub(super) const NOTIFY: Ordering = Ordering::AcqRel;
}

#[path = "../../src/order/mod.rs"]
pub mod order;

crate::scenarios!();
