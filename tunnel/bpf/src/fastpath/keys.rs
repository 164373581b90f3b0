//! Keys of the maps.

use std::net::IpAddr;

use sys::bpf::mapped_address;

use super::types;
use crate::TunnelCarrier;

/// Key of a station: its MAC address and its network.
pub fn fast_station_key(network: u16, mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    let [low, high] = network.to_le_bytes();
    u64::from_ne_bytes([a, b, c, d, e, f, low, high])
}

/// Network and MAC address of a key.
pub fn fast_station_fields(key: u64) -> (u16, [u8; 6]) {
    let [a, b, c, d, e, f, low, high] = key.to_ne_bytes();
    (u16::from_le_bytes([low, high]), [a, b, c, d, e, f])
}

/// Key of a tunnel over IPv4: remote and local address.
pub(super) fn ends_key(
    [remote, local]: [IpAddr; 2],
    carrier: TunnelCarrier,
) -> Option<types::ends> {
    let (IpAddr::V4(remote), IpAddr::V4(local)) = (remote, local) else { return None };
    let (id, kind) = carrier.id_and_kind();
    let [remote, local] = [remote, local].map(|v4| u32::from_ne_bytes(v4.octets()));
    Some(types::ends { remote, local, id, kind })
}

pub(super) fn segment_key(local: IpAddr, carrier: TunnelCarrier) -> types::segment {
    let (id, kind) = carrier.id_and_kind();
    types::segment { local: mapped_address(local).octets(), id, kind }
}
