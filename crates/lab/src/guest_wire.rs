//! A veth whose one end is the host's and whose other is a virtual machine's, by rings.

use std::net::Ipv4Addr;

use super::LabError;
use super::end::{End, join, quiet_netns};
use super::pair::{FAR, NEAR, PairSpec};

/// Two namespaces joined by a wire without offloads, so that a frame in a ring is as long as on a
/// wire and has its checksums: `host` is 10.77.0.1/24 on `wp-host`, and the guest behind the rings on
/// `port` is expected to use 10.77.0.2, as behind a [`super::TapEnd`].
///
/// `port` has no address, so its kernel answers nothing in the guest's place, and no static
/// neighbour entries exist: host and guest resolve each other by ARP. Dropping either end removes
/// the wire.
#[derive(Debug)]
pub struct GuestWire {
    /// The kernel's end.
    pub host: End,
    /// The end whose frames are the guest's.
    pub port: End,
    pub guest_ip: Ipv4Addr,
}

impl GuestWire {
    /// Builds the lab.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new() -> Result<Self, LabError> {
        let spec = PairSpec { tso: false, ..PairSpec::default() };
        let (at_host, at_port) = (quiet_netns()?, quiet_netns()?);
        let [host, port] = join(
            (&at_host, &spec.end("wp-host", 1, Some(NEAR))),
            (&at_port, &spec.end("wp-port", 2, None)),
        )?;
        host.set_feature("tx-checksum-ip-generic", false)?;
        Ok(GuestWire { host, port, guest_ip: FAR })
    }
}
