//! Mutation: setting the pending flag of the egress lock does not release what was published
//! before.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const RECHECK: bool = true;
    pub(super) const NOTIFY: Ordering = Ordering::Relaxed;
}

#[path = "../../src/order/mod.rs"]
pub mod order;

crate::scenarios!();
