//! Work that interfaces do for the stack, and merging.

mod missing;
mod offloads;
mod udp_merge;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[udp_merge::CAUSE, missing::CAUSE, offloads::CAUSE];
