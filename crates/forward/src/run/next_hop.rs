//! Next hops of the tunnels, which follow the routes and neighbours of the host.

use std::net::IpAddr;

use host::net::{self, ChangeWatch, Mac};
use host::text::chain;

use super::{Operator, RunError};
use crate::config::{Config, TunnelConfig};

/// Next hop of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextHop {
    pub(super) mac: Mac,
    /// Interface of the route and its MTU in bytes, if it is smaller than the file says.
    pub(super) narrow: Option<(String, u32)>,
}

/// Link addresses of the outer headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Links {
    /// Of the underlay.
    pub(super) own_mac: Mac,
    /// By tunnel.
    pub(super) next_hops: Vec<NextHop>,
}

impl Links {
    /// Asks routes and neighbours; one that is not known is asked by ARP, for a second at most.
    pub(super) fn find(config: &Config) -> Result<Links, RunError> {
        let interface = &config.underlay.name;
        let link = net::link_named(interface)?;
        let own_mac =
            link.mac.ok_or_else(|| net::NetError::NotEthernet { interface: interface.clone() })?;
        let next_hops = config.tunnels.iter().map(|tunnel| next_hop(config, tunnel));
        Ok(Links { own_mac, next_hops: next_hops.collect::<Result<_, _>>()? })
    }
}

fn next_hop(config: &Config, tunnel: &TunnelConfig) -> Result<NextHop, RunError> {
    match (tunnel.next_hop, tunnel.tunnel.remote) {
        (Some(mac), _) => Ok(NextHop { mac, narrow: None }),
        (None, IpAddr::V4(remote)) => {
            let found = net::resolve(remote, Some(&config.underlay.name))?;
            let is_narrow = u32::from(config.underlay.mtu_bytes) > found.mtu_bytes;
            let narrow = is_narrow.then_some((found.ifname, found.mtu_bytes));
            Ok(NextHop { mac: found.next_hop_mac, narrow })
        }
        (None, IpAddr::V6(remote)) => Err(RunError::Unsupported {
            key: "tunnel.next_hop".into(),
            problem: format!("{remote} needs one: IPv6 neighbours are not resolved"),
            remedy: "give the MAC address of the next hop (`ip -6 neigh`)".into(),
        }),
    }
}

/// Follows the next hops while the forwarder runs.
#[derive(Debug)]
pub(super) struct Follower {
    /// `None` if the kernel reports no changes.
    changes: Option<ChangeWatch>,
    pub(super) links: Links,
    /// A next hop was not found; asked again until it is.
    is_lost: bool,
}

impl Follower {
    /// - `changes`: began before `links` were found, so that no change is missed.
    pub(super) fn new(changes: Option<ChangeWatch>, links: Links) -> Follower {
        Follower { changes, links, is_lost: false }
    }

    /// The new addresses, if they have changed. Those in use are kept while there are no others.
    pub(super) fn changed(
        &mut self,
        config: &Config,
        operator: &mut impl Operator,
    ) -> Option<Links> {
        let has_changed = self.changes.as_mut().is_some_and(ChangeWatch::has_changed);
        if !has_changed && !self.is_lost {
            return None;
        }
        match Links::find(config) {
            Ok(links) => {
                self.is_lost = false;
                (links != self.links).then_some(links)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    let why = chain(&error);
                    operator.note(&format!("next hops are kept as they were: {why}"));
                }
                None
            }
        }
    }
}
