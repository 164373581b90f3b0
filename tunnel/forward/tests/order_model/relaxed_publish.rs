//! Mutation: a batch ticket is published without releasing what its worker wrote.

mod sync {
    pub(super) use crate::checked::*;
    pub(super) const PUBLISH: Ordering = Ordering::Relaxed;
    pub(super) const RECHECK: bool = true;
    pub(super) const NOTIFY: Ordering = Ordering::AcqRel;
}

#[path = "../../src/order/mod.rs"]
pub mod order;

crate::scenarios!();
