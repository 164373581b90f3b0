//! One end of the wire, in a namespace of this host.

use std::net::Ipv4Addr;

use host::net;
use host::netns::Netns;
use host::sysfs::Sysfs;
use lab::describe_nic;
use model::PathError;

/// One end of the wire.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) netns: Netns,
    /// As the user named it; `None` for a lab's and for this namespace.
    pub(crate) name: Option<String>,
    pub(crate) ifname: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) sysfs: Sysfs,
}

impl Side {
    /// The side of a namespace whose interface has an address. Errors: none has.
    pub(crate) fn with_address(netns: Netns, ip: Ipv4Addr) -> Result<Self, PathError> {
        let all = netns.run(addresses).map_err(PathError::part)?.map_err(PathError::part)?;
        let found = all.into_iter().find(|(_, address)| *address == ip);
        let (ifname, ip) = found.ok_or_else(|| PathError::Invalid {
            what: format!("no interface has the address {ip}"),
            remedy: "give the address of the interface under test with --far-address".into(),
        })?;
        let sysfs = Sysfs::of(&netns).map_err(PathError::part)?;
        Ok(Side { netns, name: None, ifname, ip, sysfs })
    }

    /// The interface in words.
    pub(crate) fn describe(&self) -> Result<String, PathError> {
        let describe = || {
            let index = net::link_named(&self.ifname)?.index;
            let driver = net::ethtool::driver(index).ok().flatten();
            describe_nic(index, driver.as_deref())
        };
        self.netns.run(describe).map_err(PathError::part)?.map_err(PathError::part)
    }
}

/// Interface and address.
pub(crate) type Address = (String, Ipv4Addr);

/// Addresses of all interfaces but the loopback that are up.
pub(crate) fn addresses() -> Result<Vec<Address>, net::NetError> {
    let mut found = Vec::new();
    for link in net::links()?.into_iter().filter(|link| !link.is_loopback && link.is_running) {
        let of = net::addresses(link.index)?;
        found.extend(of.into_iter().map(|(ip, _)| (link.name.clone(), ip)));
    }
    Ok(found)
}
