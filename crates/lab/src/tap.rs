//! A TAP interface in a namespace of its own: the host's end of a virtual machine's wire.

use std::io;
use std::net::Ipv4Addr;

use sys::netns::Netns;
use sys::tap::Tap;

use super::LabError;
use super::end::{End, PREFIX, quiet_netns};
use super::pair::{FAR, NEAR};
use host::net::{self, Mac};

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
        TapEnd::with(Tap::new)
    }

    /// As [`Self::new`], with an interface whose frames have a header of offloads in front
    /// ([`Tap::new_offloaded`]).
    pub fn new_offloaded() -> Result<Self, LabError> {
        TapEnd::with(Tap::new_offloaded)
    }

    fn with(open: impl FnOnce(&str) -> io::Result<Tap> + Send) -> Result<Self, LabError> {
        let netns = quiet_netns()?;
        let (tap, ifindex, mac) = netns.run(|| {
            let tap = open(IFNAME).map_err(|source| LabError::Tap { source })?;
            let link = net::link_named(IFNAME)?;
            net::add_address(link.index, NEAR, PREFIX)?;
            net::set_up(link.index, true)?;
            Ok::<_, LabError>((tap, link.index, link.mac))
        })??;
        Ok(TapEnd { host: host_end(netns, IFNAME, ifindex, mac, NEAR), tap, guest_ip: FAR })
    }

    /// Attaches to an interface of this namespace, which stays, as the machine behind it.
    ///
    /// Errors: it is not there or has no IPv4 address, or another program is attached.
    pub fn attach(ifname: &str) -> Result<Self, LabError> {
        // Opening would make one of another name.
        let link = net::link_named(ifname)?;
        let ifname = link.name;
        let Some((ip, _)) = net::addresses(link.index)?.first().copied() else {
            return Err(LabError::NoAddress { ifname });
        };
        let tap = Tap::new(&ifname).map_err(|source| LabError::Tap { source })?;
        let host = host_end(Netns::current()?, &ifname, link.index, link.mac, ip);
        Ok(TapEnd { host, tap, guest_ip: FAR })
    }
}

fn host_end(netns: Netns, ifname: &str, ifindex: u32, mac: Option<Mac>, ip: Ipv4Addr) -> End {
    End {
        netns,
        ifname: ifname.to_owned(),
        ifindex,
        ip_ifindex: ifindex,
        mac: mac.unwrap_or_default(),
        ip,
        ipv6: None,
        prefix: PREFIX,
        queues: 1,
        mtu_bytes: 1500,
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
