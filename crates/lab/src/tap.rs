//! A TAP interface in a namespace of its own: the host's end of a virtual machine's wire.

use std::net::Ipv4Addr;

use sys::netns::Netns;
use sys::tap::Tap;

use super::LabError;
use super::end::{End, PREFIX, quiet_netns};
use super::pair::{FAR, NEAR};
use host::net;

const IFNAME: &str = "wp-tap";

/// A namespace whose only wire ends in this process: `host` is 10.77.0.1/24 on `wp-tap`, and the
/// guest at the other end is expected to use 10.77.0.2.
///
/// No static neighbour entries: both ends resolve each other by ARP.
#[derive(Debug)]
pub struct TapEnd {
    /// The kernel's end.
    pub host: End,
    /// This process's end: frames as they cross the wire.
    pub tap: Tap,
    pub guest_ip: Ipv4Addr,
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
            ip_ifindex: ifindex,
            mac: mac.unwrap_or_default(),
            ip: NEAR,
            ipv6: None,
            prefix: PREFIX,
            queues: 1,
            mtu_bytes: 1500,
        };
        Ok(TapEnd { host, tap, guest_ip: FAR })
    }
}

/// A namespace in which a virtual machine creates its own TAP interface, one machine at a time. The
/// interface is removed with the machine, and the namespace on drop.
#[derive(Debug)]
pub struct TapHome {
    /// Namespace of the machine and of the programs that exchange packets with it.
    pub netns: Netns,
    /// Address of an [adopted](Self::adopt) interface.
    pub host_ip: Ipv4Addr,
    /// Address for the machine.
    pub guest_ip: Ipv4Addr,
}

impl TapHome {
    /// Creates the namespace, with loopback as its only interface.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new() -> Result<Self, LabError> {
        Ok(TapHome { netns: quiet_netns()?, host_ip: NEAR, guest_ip: FAR })
    }

    /// Assigns the address to an interface that a machine has created, and sets it up.
    pub fn adopt(&self, ifname: &str) -> Result<(), LabError> {
        self.netns.run(|| {
            let link = net::link_named(ifname)?;
            net::add_address(link.index, self.host_ip, PREFIX)?;
            Ok(net::set_up(link.index, true)?)
        })?
    }
}
