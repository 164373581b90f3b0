//! Mutation: who leaves the egress gate does not look once more.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const RECHECK: bool = false;
    pub(super) const KNOCK: Ordering = Ordering::AcqRel;
}

#[path = "../../src/tunnel/order/mod.rs"]
pub mod order;

crate::scenarios!();
