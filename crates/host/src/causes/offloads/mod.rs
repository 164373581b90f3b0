//! Work that interfaces do for the stack, and merging.

mod offloads;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[offloads::CAUSE];
