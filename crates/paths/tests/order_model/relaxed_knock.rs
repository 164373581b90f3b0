//! Mutation: a knock at the egress gate does not release what was published before.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const RECHECK: bool = true;
    pub(super) const KNOCK: Ordering = Ordering::Relaxed;
}

#[path = "../../src/tunnel/order/mod.rs"]
pub mod order;

crate::scenarios!();
