//! Mutation: a token is published without releasing what its worker wrote.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Relaxed;
    pub(super) const RECHECK: bool = true;
    pub(super) const KNOCK: Ordering = Ordering::AcqRel;
}

#[path = "../../src/tunnel/order/mod.rs"]
pub mod order;

crate::scenarios!();
