//! Next hops of the tunnels, which follow the routes and neighbours of the host.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use host::net::{self, ChangeWatch, Mac};
use host::text::chain;

use super::{Operator, RunError};
use crate::config::{Config, TunnelConfig};
use crate::path_mtu::Learnt;

/// Time from a next hop that was not found to the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest time from one check to the next, on hosts whose neighbours change all the time.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Next hop of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextHop {
    pub(super) mac: Mac,
    /// Interface of the route and its MTU in bytes, if it is smaller than the file says.
    pub(super) narrow: Option<(String, u32)>,
    /// MTU of the path, if a router on it has reported one.
    pub(super) learnt: Option<Learnt>,
}

impl NextHop {
    /// MTU of the first link: that of the file, unless the interface of the route carries less.
    pub(super) fn link_mtu_bytes(&self, config: &Config) -> u16 {
        let configured = config.underlay.mtu_bytes;
        let narrow = self.narrow.as_ref().and_then(|(_, mtu)| u16::try_from(*mtu).ok());
        narrow.map_or(configured, |narrow| narrow.min(configured))
    }

    /// MTU of the path, as far as it is known.
    pub(super) fn mtu_bytes(&self, config: &Config) -> u16 {
        let link = self.link_mtu_bytes(config);
        self.learnt.map_or(link, |learnt| learnt.mtu_bytes.min(link))
    }
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
        let own_mac = own_mac(config)?;
        let next_hops = config.tunnels.iter().map(|tunnel| next_hop(config, tunnel));
        Ok(Links { own_mac, next_hops: next_hops.collect::<Result<_, _>>()? })
    }

    /// Takes over the MTUs learnt for the same far ends by the same next hops.
    pub(super) fn keep_learnt(&mut self, config: &Config, before: &Links, of_before: &Config) {
        for (tunnel, hop) in config.tunnels.iter().zip(&mut self.next_hops) {
            let mut known = of_before.tunnels.iter().zip(&before.next_hops);
            let same = known.find(|(other, was)| {
                (other.tunnel.remote, was.mac) == (tunnel.tunnel.remote, hop.mac)
            });
            hop.learnt = same.and_then(|(_, was)| was.learnt);
        }
    }
}

/// Checks that a route of each tunnel leads out of the underlay, without asking for its next hop.
pub(super) fn check_routes(config: &Config) -> Result<(), RunError> {
    own_mac(config)?;
    for tunnel in &config.tunnels {
        match (tunnel.next_hop, tunnel.tunnel.remote) {
            (Some(_), _) => {}
            (None, remote @ IpAddr::V4(_)) => {
                net::route_by(remote, Some(&config.underlay.name))?;
            }
            (None, remote @ IpAddr::V6(_)) => return Err(needs_next_hop(remote)),
        }
    }
    Ok(())
}

fn needs_next_hop(remote: IpAddr) -> RunError {
    RunError::Unsupported {
        key: "tunnel.next_hop".into(),
        problem: format!("{remote} needs one: IPv6 neighbours are not resolved"),
        remedy: "give the MAC address of the next hop (`ip -6 neigh`)".into(),
    }
}

fn own_mac(config: &Config) -> Result<Mac, RunError> {
    let interface = &config.underlay.name;
    let mac = net::link_named(interface)?.mac;
    Ok(mac.ok_or_else(|| net::NetError::NotEthernet { interface: interface.clone() })?)
}

fn next_hop(config: &Config, tunnel: &TunnelConfig) -> Result<NextHop, RunError> {
    match (tunnel.next_hop, tunnel.tunnel.remote) {
        (Some(mac), _) => Ok(NextHop { mac, narrow: None, learnt: None }),
        (None, IpAddr::V4(remote)) => {
            let found = net::resolve(remote, Some(&config.underlay.name))?;
            let is_narrow = u32::from(config.underlay.mtu_bytes) > found.mtu_bytes;
            let narrow = is_narrow.then_some((found.ifname, found.mtu_bytes));
            Ok(NextHop { mac: found.next_hop_mac, narrow, learnt: None })
        }
        (None, remote @ IpAddr::V6(_)) => Err(needs_next_hop(remote)),
    }
}

/// Follows the next hops while the forwarder runs.
#[derive(Debug)]
pub(super) struct Follower {
    /// `None` if the kernel reports no changes.
    changes: Option<ChangeWatch>,
    pub(super) links: Links,
    /// Something has changed, or a next hop was not found.
    is_due: bool,
    /// A next hop was not found, which was reported.
    is_lost: bool,
    /// Not asked before: each failure takes a second of this thread, and each of many tunnels its time.
    not_before: Instant,
    /// Tunnel that is asked first, the one behind the last failure.
    first: usize,
}

impl Follower {
    /// - `changes`: began before `links` were found, so that no change is missed.
    pub(super) fn new(changes: Option<ChangeWatch>, links: Links) -> Follower {
        let not_before = Instant::now();
        Follower { changes, links, is_due: false, is_lost: false, not_before, first: 0 }
    }

    /// Waits for a change, `time` at most.
    pub(super) fn wait(&self, time: Duration) {
        match &self.changes {
            Some(changes) if !self.is_due && Instant::now() >= self.not_before => {
                // An interruption is harmless, and an error recurs at the next read.
                let _ = sys::poll::readable(&[changes.as_fd()], time);
            }
            _ => thread::sleep(time),
        }
    }

    /// The new addresses, if they have changed. A next hop that is not found stays as it was.
    pub(super) fn changed(
        &mut self,
        config: &Config,
        operator: &mut impl Operator,
    ) -> Option<Links> {
        self.is_due |= self.changes.as_mut().is_some_and(ChangeWatch::has_changed);
        if !self.is_due || Instant::now() < self.not_before {
            return None;
        }
        let (begun, mut found) = (Instant::now(), self.links.clone());
        let failure = self.look(config, &mut found).err();
        self.is_due = failure.is_some();
        let was_lost = std::mem::replace(&mut self.is_lost, failure.is_some());
        let pause =
            if self.is_lost { RETRY_INTERVAL } else { CHECK_INTERVAL.max(4 * begun.elapsed()) };
        self.not_before = Instant::now() + pause;
        if let Some(error) = failure.filter(|_| !was_lost) {
            let why = chain(&error);
            operator.note(&format!("a next hop was not found and is kept as it was: {why}"));
        }
        (found != self.links).then_some(found)
    }

    /// Asks for all addresses, up to the first that is not found.
    fn look(&mut self, config: &Config, found: &mut Links) -> Result<(), RunError> {
        found.own_mac = own_mac(config)?;
        let count = config.tunnels.len();
        let from = self.first % count.max(1);
        for at in (from..count).chain(0..from) {
            self.first = at + 1;
            let hop = next_hop(config, &config.tunnels[at])?;
            let was = &found.next_hops[at];
            // Another next hop is another path.
            let learnt = was.learnt.filter(|_| was.mac == hop.mac);
            found.next_hops[at] = NextHop { learnt, ..hop };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use host::netns::Netns;

    use super::*;

    #[test]
    fn wait_ends_with_a_change() {
        let netns = Netns::new().unwrap();
        let changes = netns.run(ChangeWatch::new).unwrap().unwrap();
        let links = Links { own_mac: [0; 6], next_hops: Vec::new() };
        let follower = Follower::new(Some(changes), links);
        const LOOPBACK: u32 = 1;
        netns.run(|| net::set_up(LOOPBACK, true)).unwrap().unwrap();
        let (begun, whole) = (Instant::now(), Duration::from_secs(60));
        follower.wait(whole);
        assert!(begun.elapsed() < whole);
    }
}
