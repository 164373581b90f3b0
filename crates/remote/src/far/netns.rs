//! A far end in a namespace of this host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use host::net;
use host::tune;
use lab::FarEnd;
use sys::child::{ChildPlace, this_program};
use sys::netns::Netns;

use super::{FarHost, FarOptions, Started, random_secret};
use crate::RemoteError;

/// Starts this program as a peer in the namespace `name`, which stays as it is.
pub(super) fn start(name: &str, options: &FarOptions<'_>) -> Result<FarHost, RemoteError> {
    let (mut started, _) = open(name, options, |address| {
        let listen = SocketAddr::new(address, 0).to_string();
        let mut command = this_program();
        command.args(["peer", "--secret-stdin", "--listen", &listen]);
        command
    })?;
    let secret = random_secret()?;
    // A program that ended already is reported by the next line.
    let _ = started.send(format!("{secret}\n").as_bytes());
    let at = started.listening()?;
    Ok(started.into_host(at, secret))
}

/// Starts a program in the namespace `name`; returns it with its address for the load.
///
/// - `command`: given that address.
pub(crate) fn open(
    name: &str,
    options: &FarOptions<'_>,
    command: impl FnOnce(IpAddr) -> Command,
) -> Result<(Started, IpAddr), RemoteError> {
    let place = tune::Place { netns: Some(name.to_owned()), root: None };
    let netns = Netns::open(place.netns_file())?;
    if netns.inode()? == Netns::current()?.inode()? {
        return Err(RemoteError::Own { name: name.to_owned() });
    }
    let address = match options.address {
        Some(address) => address,
        None => address_in(&netns, name, options)?,
    };
    let place = ChildPlace { netns: Some(&netns), cpus: &[] };
    let end = FarEnd::Netns(name.to_owned()).to_string();
    Ok((Started::spawn(end, command(address), &place)?, address))
}

/// The address of namespace `far` that is reached from namespace `near`.
///
/// - `name`: that of `far`, for errors.
pub fn address_between(near: &Netns, far: &Netns, name: &str) -> Result<IpAddr, RemoteError> {
    near.run(|| address_in(far, name, &FarOptions::default()))?
}

/// The address of a namespace that is reached from here, and from which here is reached, without a router
/// if there is one.
fn address_in(netns: &Netns, name: &str, options: &FarOptions<'_>) -> Result<IpAddr, RemoteError> {
    let ifname = options.ifname;
    let candidates = netns.run(|| own_addresses(options.ipv6))??;
    let wanted = ifname.map(net::link_named).transpose()?.map(|link| link.index);
    let mut found = Vec::new();
    for (address, link) in candidates {
        let Ok(there) = net::route_to(address) else { continue };
        let is_local = net::link(there.ifindex).is_ok_and(|link| link.is_loopback);
        if is_local || wanted.is_some_and(|wanted| wanted != there.ifindex) {
            continue;
        }
        let Ok(back) = netns.run(|| net::route_to(there.source))? else { continue };
        if back.source == address {
            let hops = usize::from(there.gateway.is_some()) + usize::from(back.gateway.is_some());
            found.push((hops, address, link));
        }
    }
    let least = found.iter().map(|(hops, ..)| *hops).min();
    found.retain(|(hops, ..)| Some(*hops) == least);
    match &found[..] {
        [] => {
            let by = ifname.map_or(String::new(), |ifname| format!(" by {ifname}"));
            Err(RemoteError::NoAddress { name: name.to_owned(), by })
        }
        [(_, address, _)] => Ok(*address),
        many => {
            let list = many.iter().map(|(_, address, link)| format!("{address} ({link})"));
            let list = list.collect::<Vec<_>>().join(", ");
            Err(RemoteError::ManyAddresses { name: name.to_owned(), list })
        }
    }
}

/// Addresses of the calling thread's namespace, each with its interface; none of loopback.
fn own_addresses(ipv6: bool) -> Result<Vec<(IpAddr, String)>, net::NetError> {
    let like = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let mut found = Vec::new();
    for link in net::links()?.into_iter().filter(|link| link.is_up && !link.is_loopback) {
        let addresses = net::addresses_like(link.index, like)?.into_iter().map(|(ip, _)| ip);
        // An address of the link alone needs an interface beside it.
        let usable =
            addresses.filter(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
        found.extend(usable.map(|ip| (ip, link.name.clone())));
    }
    Ok(found)
}
