//! Addresses and limits of the wire.

use std::net::Ipv4Addr;
use std::time::Duration;

pub const FRAME_BYTES_MAX: usize = 1514;
/// Default address of the guest.
pub const GUEST_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The near end.
pub const US: Endpoint = Endpoint { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 0, 0, 1) };
/// Time limit of an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses of a host on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    pub mac: [u8; 6],
    pub ip: Ipv4Addr,
}
