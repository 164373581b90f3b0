//! The program itself.

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[];
