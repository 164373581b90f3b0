//! Arguments for groups and interfaces.

use std::net::{Ipv4Addr, SocketAddrV4};

use clap::Args;
use host::net::{Link, link, link_named, route_to};
use io::multicast::Group;
use remote::Failure;

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// Group and UDP port; line A of a pair
    #[arg(value_name = "GROUP:PORT")]
    group: SocketAddrV4,
    /// Group and UDP port of line B, a copy of line A
    #[arg(long, value_name = "GROUP:PORT")]
    group_b: Option<SocketAddrV4>,
    /// Interface (default: by the routing table)
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    /// Interface of line B (default: that of line A)
    #[arg(long, value_name = "IF", requires = "group_b")]
    interface_b: Option<String>,
    /// Receive only from this sender (source-specific membership)
    #[arg(long, value_name = "IP")]
    source: Option<Ipv4Addr>,
    /// Sender of line B (default: that of line A)
    #[arg(long, value_name = "IP", requires = "group_b")]
    source_b: Option<Ipv4Addr>,
}

impl GroupArgs {
    /// The groups. Errors: an interface is missing or down.
    pub(crate) fn groups(&self) -> Result<Vec<Group>, Failure> {
        let mut groups = vec![group(self.group, self.interface.as_deref(), self.source)?];
        if let Some(second) = self.group_b {
            if second == self.group {
                return Err(Failure::Usage(format!(
                    "--group-b {second} equals the first group; a pair needs two groups or ports"
                )));
            }
            let interface = self.interface_b.as_deref().or(self.interface.as_deref());
            groups.push(group(second, interface, self.source_b.or(self.source))?);
        }
        Ok(groups)
    }
}

fn group(
    address: SocketAddrV4,
    interface: Option<&str>,
    source: Option<Ipv4Addr>,
) -> Result<Group, Failure> {
    if !address.ip().is_multicast() {
        return Err(Failure::Usage(format!(
            "{} is not a multicast group; groups are 224.0.0.0 to 239.255.255.255",
            address.ip()
        )));
    }
    let link = match interface {
        Some(name) => interface_named(name)?,
        None => {
            let route = route_to(*address.ip()).map_err(|_| {
                Failure::Usage(format!("no route to {}; give the interface with -i", address.ip()))
            })?;
            link(route.ifindex)?
        }
    };
    Ok(Group { address, source, ifindex: link.index, ifname: link.name })
}

/// The interface `name`. Errors: it is missing or down.
pub(crate) fn interface_named(name: &str) -> Result<Link, Failure> {
    let link = link_named(name)?;
    if !link.is_up {
        return Err(Failure::failed(format!(
            "interface {name} is down; bring it up (ip link set {name} up)"
        )));
    }
    Ok(link)
}
