//! Work that interfaces do for the stack, and merging.

use super::Cause;

pub(super) const CAUSES: &[Cause] =
    &[Cause { is_of_forwarding: true, ..Cause::new("offloads", super::links::offloads) }];
