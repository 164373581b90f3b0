//! One end of the wire on this host.

use std::net::{IpAddr, Ipv4Addr};

use host::net;
use host::netns::Netns;
use host::sysfs::Sysfs;
use lab::{LossWatch, describe_nic};
use model::PathError;

use crate::settings::Spot;
use crate::switches::At;
use crate::variables::WireEnd;

const LOOPBACK: &str = "lo";

/// One end of the wire.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) netns: Netns,
    /// As the user named it; `None` for a lab's and for this namespace.
    pub(crate) name: Option<String>,
    /// Interface under test, or the loopback.
    pub(crate) ifname: String,
    pub(crate) ip: IpAddr,
    /// `None` for this host itself, whose counters are those of all its programs.
    pub(crate) sysfs: Option<Sysfs>,
    /// True if both ends are this one.
    pub(crate) is_shared: bool,
}

impl Side {
    /// Watches what the namespace loses; `None` for this host itself, which loses packets of others too.
    pub(crate) fn watch_losses(&self) -> Option<LossWatch> {
        self.sysfs.as_ref().and_then(|_| LossWatch::begin(&self.netns))
    }

    /// The side of a namespace whose interface has an address. Errors: none has.
    pub(crate) fn with_address(netns: Netns, ip: IpAddr) -> Result<Self, PathError> {
        let all = netns.run(addresses).map_err(PathError::part)?.map_err(PathError::part)?;
        let found = all.found.into_iter().find(|(_, address)| *address == ip);
        let (ifname, ip) = found.ok_or_else(|| PathError::Invalid {
            what: format!("no interface has the address {ip}"),
            remedy: "give the address of the interface under test with --far-address".into(),
        })?;
        let sysfs = Sysfs::of(&netns).map_err(PathError::part)?;
        Ok(Side { netns, name: None, ifname, ip, sysfs: Some(sysfs), is_shared: false })
    }

    /// This host itself.
    pub(crate) fn here() -> Result<Self, PathError> {
        let netns = Netns::current().map_err(PathError::part)?;
        Ok(Side::shared(netns, None))
    }

    /// One namespace for both ends, with its loopback up.
    pub(crate) fn loopback(netns: Netns) -> Result<Self, PathError> {
        let sysfs = Sysfs::of(&netns).map_err(PathError::part)?;
        Ok(Side::shared(netns, Some(sysfs)))
    }

    /// A namespace that exists, as the place of both ends. Errors: it has no such interface, or none with an address.
    ///
    /// - `name`: of the namespace; `None` for that of this process, whose counters are those of all its programs.
    pub(crate) fn existing(
        netns: Netns,
        name: Option<String>,
        interface: Option<&str>,
    ) -> Result<Self, PathError> {
        let (own, is_there) = netns
            .run(|| {
                let is_there = interface.is_none_or(|interface| net::link_named(interface).is_ok());
                Ok::<_, net::NetError>((addresses()?.found, is_there))
            })
            .map_err(PathError::part)?
            .map_err(PathError::part)?;
        let wanted = |(ifname, _): &&Address| interface.is_none_or(|interface| interface == ifname);
        let (ifname, ip) = match (own.iter().find(wanted), interface) {
            (Some((ifname, ip)), _) => (ifname.clone(), *ip),
            (None, Some(interface)) if is_there => {
                (interface.to_owned(), IpAddr::from(Ipv4Addr::LOCALHOST))
            }
            (None, Some(interface)) => {
                return Err(PathError::Invalid {
                    what: format!("there is no interface {interface} at this place"),
                    remedy: "`ip link` lists them there".into(),
                });
            }
            (None, None) => {
                return Err(PathError::Invalid {
                    what: "no interface of this place is up and has an address".into(),
                    remedy: "name the interface under test: netns:NAME@INTERFACE".into(),
                });
            }
        };
        let sysfs =
            name.as_ref().map(|_| Sysfs::of(&netns).map_err(PathError::part)).transpose()?;
        Ok(Side { netns, name, ifname, ip, sysfs, is_shared: true })
    }

    fn shared(netns: Netns, sysfs: Option<Sysfs>) -> Self {
        let (ifname, ip) = (LOOPBACK.to_owned(), IpAddr::from(Ipv4Addr::LOCALHOST));
        Side { netns, name: None, ifname, ip, sysfs, is_shared: true }
    }

    /// A second handle of a side that both ends share.
    pub(crate) fn other_end(&self) -> Result<Self, PathError> {
        let netns = self.netns.try_clone().map_err(PathError::part)?;
        let sysfs = self.sysfs.as_ref().map(|_| Sysfs::of(&netns).map_err(PathError::part));
        let (name, ifname) = (self.name.clone(), self.ifname.clone());
        Ok(Side { netns, name, ifname, ip: self.ip, sysfs: sysfs.transpose()?, is_shared: true })
    }

    /// This end for the variables of commands.
    pub(crate) fn wire_end(&self) -> WireEnd {
        WireEnd { ip: self.ip, interface: self.ifname.clone() }
    }

    /// The end as a place of switches.
    pub(crate) fn spot(&self, at: At) -> Spot<'_> {
        let interfaces = vec![self.ifname.clone()];
        Spot { at, netns: &self.netns, name: self.name.as_deref(), interfaces }
    }

    /// Namespace that programs of this end enter; `None` for this host itself.
    pub(crate) fn program_netns(&self) -> Option<&Netns> {
        self.sysfs.as_ref().map(|_| &self.netns)
    }

    /// `None` if it cannot be read.
    pub(crate) fn mtu_bytes(&self) -> Option<u64> {
        let text = self.sysfs.as_ref()?.read(format!("class/net/{}/mtu", self.ifname)).ok()?;
        text.trim().parse().ok()
    }

    /// The interface in words.
    pub(crate) fn describe(&self) -> Result<String, PathError> {
        let described = self.netns.run(|| {
            let index = net::link_named(&self.ifname)?.index;
            let driver = net::ethtool::driver(index).ok().flatten();
            describe_nic(index, driver.as_deref())
        });
        described.map_err(PathError::part)?.map_err(PathError::part)
    }
}

/// Interface and address.
pub(crate) type Address = (String, IpAddr);

/// Addresses of a namespace.
#[derive(Debug, Default)]
pub(crate) struct SideAddresses {
    /// Usable now; those of IPv4 first.
    pub(crate) found: Vec<Address>,
    /// True if an interface that is up has no carrier yet, or no usable address yet.
    pub(crate) is_incomplete: bool,
}

/// Addresses of all interfaces but the loopback that are up, in the calling thread's namespace.
pub(crate) fn addresses() -> Result<SideAddresses, net::NetError> {
    let mut all = SideAddresses::default();
    for link in net::links()?.into_iter().filter(|link| !link.is_loopback && link.is_up) {
        if !link.is_running {
            all.is_incomplete = true;
            continue;
        }
        let of_link = net::reachable(link.index)?;
        all.is_incomplete |= of_link.is_tentative || of_link.addresses.is_empty();
        all.found.extend(of_link.addresses.into_iter().map(|ip| (link.name.clone(), ip)));
    }
    all.found.sort_by_key(|(_, ip)| ip.is_ipv6());
    Ok(all)
}
