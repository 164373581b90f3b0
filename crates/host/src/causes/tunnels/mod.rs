//! Tunnels.

mod tunnel;

pub(super) use tunnel::is_tunnel;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    Cause { is_of_forwarding: true, ..Cause::new("tunnel-queues", tunnel::queues) },
    Cause { is_of_forwarding: true, ..Cause::new("tunnel-headroom", tunnel::headroom) },
    Cause { is_of_forwarding: true, ..Cause::new("tunnel-mtu", tunnel::mtu) },
];
