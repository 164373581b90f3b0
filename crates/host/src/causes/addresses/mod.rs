//! Addresses, neighbours and routes.

mod arp_flux;
mod asym_route;
mod bad_v6;
mod forwarding;
mod garp;
mod martian;
mod neigh_full;
mod no_neighbour;
mod no_route;
mod ra_ignored;
mod reverse_path;
mod rt6_max;
mod ttl;

use std::net::IpAddr;

use super::Cause;

pub(super) const CAUSES: &[Cause] = &[
    neigh_full::CAUSE,
    garp::CAUSE,
    no_neighbour::CAUSE,
    bad_v6::CAUSE,
    asym_route::CAUSE,
    rt6_max::CAUSE,
    no_route::NO_ROUTE,
    no_route::DEAD_ROUTE,
    no_route::NOT_ROUTER,
    no_route::LOOP,
    ttl::CAUSE,
    ra_ignored::CAUSE,
    reverse_path::CAUSE,
    martian::CAUSE,
    arp_flux::CAUSE,
    forwarding::CAUSE,
];

/// An address is in the network of another.
///
/// - `prefix`: bits of the network's prefix.
fn is_in_network(ip: IpAddr, network: IpAddr, prefix: u8) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differing = ip.to_bits() ^ network.to_bits();
            differing.leading_zeros() >= u32::from(prefix)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differing = ip.to_bits() ^ network.to_bits();
            differing.leading_zeros() >= u32::from(prefix)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_of_an_address_is_compared_by_its_prefix() {
        let is_in = |ip: &str, network: &str, prefix| {
            is_in_network(ip.parse().unwrap(), network.parse().unwrap(), prefix)
        };
        assert!(is_in("10.1.0.9", "10.1.0.1", 24) && !is_in("10.1.1.9", "10.1.0.1", 24));
        assert!(is_in("192.0.2.1", "10.1.0.1", 0) && is_in("10.1.0.1", "10.1.0.1", 32));
        assert!(is_in("fd00::9", "fd00::1", 64) && !is_in("fd00:0:0:1::9", "fd00::1", 64));
        assert!(!is_in("10.1.0.9", "::", 0));
    }
}
