//! Groups and interfaces as they are given on the command line.

use std::net::{Ipv4Addr, SocketAddrV4};

use clap::Args;
use host::net::{Link, link, link_named, route_to};
use io::multicast::Group;

use crate::end::Failure;

#[derive(Debug, Args)]
pub(crate) struct GroupArgs {
    /// Group and UDP port; line A of a pair
    #[arg(long, value_name = "GROUP:PORT")]
    group: SocketAddrV4,
    /// Group and UDP port of line B, which carries the same
    #[arg(long, value_name = "GROUP:PORT")]
    group_b: Option<SocketAddrV4>,
    /// Interface; the one that the routes give for the group unless given
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    /// Interface of line B; that of line A unless given
    #[arg(long, value_name = "IF", requires = "group_b")]
    interface_b: Option<String>,
    /// Hear only this sender (source-specific membership)
    #[arg(long, value_name = "IP")]
    source: Option<Ipv4Addr>,
    /// The sender of line B; that of line A unless given
    #[arg(long, value_name = "IP", requires = "group_b")]
    source_b: Option<Ipv4Addr>,
}

impl GroupArgs {
    /// One group or two, on interfaces that are there and up.
    pub(crate) fn groups(&self) -> Result<Vec<Group>, Failure> {
        let mut groups = vec![group(self.group, self.interface.as_deref(), self.source)?];
        if let Some(second) = self.group_b {
            if second == self.group {
                return Err(Failure::Usage(format!(
                    "--group-b {second} is the same as --group; a pair has two groups or ports"
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
            "{} is no multicast group; groups are 224.0.0.0 to 239.255.255.255",
            address.ip()
        )));
    }
    let link = match interface {
        Some(name) => interface_named(name)?,
        None => {
            let route = route_to(*address.ip()).map_err(|_| {
                Failure::Usage(format!(
                    "no route leads to {}; say on which interface it is with -i",
                    address.ip()
                ))
            })?;
            link(route.ifindex).map_err(|e| Failure::of(&e))?
        }
    };
    Ok(Group { address, source, ifindex: link.index, ifname: link.name })
}

/// An interface that is there and up; else what to do.
pub(crate) fn interface_named(name: &str) -> Result<Link, Failure> {
    let link = link_named(name).map_err(|e| Failure::of(&e))?;
    if !link.is_up {
        return Err(Failure::failed(format!(
            "interface {name} is down; bring it up (ip link set {name} up)"
        )));
    }
    Ok(link)
}
