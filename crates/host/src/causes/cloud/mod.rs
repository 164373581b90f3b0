//! Limits of a cloud or a hypervisor.

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[];
