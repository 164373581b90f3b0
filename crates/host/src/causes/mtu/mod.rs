//! The largest packet of a path.

mod black_hole;
mod frag_fails;
mod inner_mtu;
mod tunnel_mss;

use super::Cause;

pub(super) const CAUSES: &[Cause] =
    &[inner_mtu::CAUSE, tunnel_mss::CAUSE, black_hole::CAUSE, frag_fails::CAUSE];
