//! Mutation: no fences around the egress gate.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Release;
    pub(super) const RECHECK: bool = true;
    pub(super) const FENCE: bool = false;
}

#[path = "../../src/tunnel/order/mod.rs"]
pub mod order;

crate::scenarios!();
