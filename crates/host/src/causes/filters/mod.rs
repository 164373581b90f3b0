//! Filters, network address translation and connection tracking.

mod bridge;
mod netfilter;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    Cause { is_of_forwarding: true, ..Cause::new("hooks", netfilter::hooks) },
    Cause { is_of_forwarding: true, ..Cause::new("conntrack", netfilter::conntrack) },
    bridge::CAUSE,
];
