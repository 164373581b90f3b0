//! A TAP interface alone in a namespace: the host's side of a virtual machine's wire.

use std::net::Ipv4Addr;

use sys::netns::Netns;
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
            mac: mac.unwrap_or_default(),
            ip: NEAR,
            prefix: PREFIX,
            queues: 1,
            mtu_bytes: 1500,
        };
        Ok(TapEnd { host, tap, guest_ip: FAR })
    }
}

/// A namespace for a virtual machine that makes its own TAP interface there, one machine at a
/// time. The interface goes with the machine, and the namespace with this.
#[derive(Debug)]
pub struct TapHome {
    /// The namespace: where the machine and those who talk to it are to run.
    pub netns: Netns,
    /// Address that an [adopted](Self::adopt) interface gets.
    pub host_ip: Ipv4Addr,
    /// Address that the machine is to have.
    pub guest_ip: Ipv4Addr,
}

impl TapHome {
    /// Makes the namespace; it has no interface but loopback yet.
    ///
    /// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
    pub fn new() -> Result<Self, LabError> {
        Ok(TapHome { netns: quiet_netns()?, host_ip: NEAR, guest_ip: FAR })
    }

    /// Gives the interface that a machine has made its address, and sets it up.
    pub fn adopt(&self, ifname: &str) -> Result<(), LabError> {
        self.netns.run(|| {
            let link = net::link_named(ifname)?;
            net::add_address(link.index, self.host_ip, PREFIX)?;
            Ok(net::set_up(link.index, true)?)
        })?
    }
}
