//! A TAP interface alone in a namespace: the host's side of a virtual machine's wire.

use sys::tap::Tap;

use super::LabError;
use super::end::{End, PREFIX, quiet_netns};
use super::pair::{FAR, NEAR};
use crate::net;

const IFNAME: &str = "wp-tap";

/// A namespace whose one wire ends in this process: `host` is 10.77.0.1/24 on `wp-tap`, and the
/// machine at the other end is expected to be 10.77.0.2.
///
/// The interface is learned and resolved as any other: nobody's MAC address is entered anywhere.
#[derive(Debug)]
pub struct TapEnd {
    /// The kernel's side.
    pub host: End,
    /// Our side: frames as they cross the wire.
    pub tap: Tap,
    /// Address that the other end is to have.
    pub guest_ip: std::net::Ipv4Addr,
}

impl TapEnd {
    /// Builds the lab.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new() -> Result<Self, LabError> {
        let netns = quiet_netns()?;
        let (tap, ifindex, mac) = netns.run(|| {
            let tap = Tap::new(IFNAME).map_err(|source| LabError::Tap { source })?;
            let link = net::link_named(IFNAME)?;
            net::add_address(link.index, NEAR, PREFIX)?;
            net::set_up(link.index, true)?;
            Ok::<_, LabError>((tap, link.index, link.mac))
        })??;
        let host = End {
            netns,
            ifname: IFNAME.to_owned(),
            ifindex,
            mac: mac.unwrap_or_default(),
            ip: NEAR,
            prefix: PREFIX,
            queues: 1,
            mtu_bytes: 1500,
        };
        Ok(TapEnd { host, tap, guest_ip: FAR })
    }
}
