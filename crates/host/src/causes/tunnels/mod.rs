//! Tunnels.

mod tunnel;
mod tunnel_csum;
mod xfrm;

use super::Cause;
use super::evidence::{Evidence, Window};
use crate::net::Link;

pub(super) const CAUSES: &[Cause] =
    &[tunnel::QUEUES, tunnel::HEADROOM, tunnel::MTU, tunnel_csum::CAUSE, xfrm::CAUSE];

/// True for a device that puts packets into others, with or without encryption.
pub(super) fn is_tunnel(link: &Link) -> bool {
    matches!(
        link.kind.as_deref(),
        Some(
            "vxlan"
                | "gretap"
                | "ip6gretap"
                | "geneve"
                | "gre"
                | "ip6gre"
                | "ipip"
                | "sit"
                | "ip6tnl"
                | "vti"
                | "vti6"
                | "xfrm"
                | "wireguard"
                | "bareudp"
                | "erspan"
                | "ip6erspan"
                | "ovpn"
                | "ppp"
        )
    ) || link.kind.as_deref() == Some("tun") && link.mac.is_none()
}

/// Tunnels that received something within the window.
pub(super) fn receiving_tunnels<'a>(view: &'a Evidence, window: &Window) -> Vec<&'a Link> {
    let receives = |link: &&Link| window.link(&link.name, "rx_packets").now > 0;
    view.links.values().filter(|link| is_tunnel(link)).filter(receives).collect()
}
