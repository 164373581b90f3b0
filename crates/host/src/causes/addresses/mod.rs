//! Addresses, neighbours and routes.

mod forwarding;
mod reverse_path;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    Cause { is_of_forwarding: true, ..Cause::new("forwarding", forwarding::check) },
    Cause { is_of_forwarding: true, ..Cause::new("reverse-path", reverse_path::check) },
];
