//! Work that interfaces do for the stack, and merging.

mod missing;
mod switched_off;
mod udp_merge;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[udp_merge::CAUSE, missing::CAUSE, switched_off::CAUSE];
