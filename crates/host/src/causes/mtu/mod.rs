//! The largest packet of a path.

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[];
