//! Filter for the datagrams of market-data groups, which it stamps.

use std::net::Ipv4Addr;

use super::SocketFilter;
use crate::bpf::error::BpfError;
use crate::bpf::object::{Opened, embedded, per_cpu, shared_types};

shared_types!("feed");

/// Most groups of a filter.
///
/// Source: GROUPS_MAX, bpf/feed.bpf.c.
pub const FEED_GROUPS_MAX: usize = 2;
/// Bytes in front of each redirected frame: its arrival, CLOCK_TAI nanoseconds; 0 if it has none.
pub const FEED_STAMP_BYTES: usize = size_of::<u64>();

/// A multicast group whose datagrams a filter redirects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedGroup {
    pub address: Ipv4Addr,
    pub port: u16,
    /// Only sender; `None` for any.
    pub source: Option<Ipv4Addr>,
}

fn address_word(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

impl SocketFilter {
    /// Loads the program that takes and stamps the datagrams of `groups`, 1 to [`FEED_GROUPS_MAX`]: IPv4,
    /// whole, at most one VLAN tag. Nothing is attached yet.
    ///
    /// - `queues`: receive queues of the interface, at least 1.
    ///
    /// # Errors
    /// As of [`Self::for_probe`]; [`BpfError::Load`] before Linux 6.1, too.
    pub fn for_feed(groups: &[FeedGroup], queues: u32) -> Result<Self, BpfError> {
        if !(1..=FEED_GROUPS_MAX).contains(&groups.len()) {
            let what =
                format!("a filter takes 1 to {FEED_GROUPS_MAX} groups, not {}", groups.len());
            return Err(BpfError::Invalid { what });
        }
        let mut config =
            config { addresses: [0; 2], sources: [0; 2], ports: [0; 2], group_count: 0 };
        for (at, group) in groups.iter().enumerate() {
            config.addresses[at] = address_word(group.address);
            config.sources[at] = group.source.map_or(0, address_word);
            config.ports[at] = group.port;
            config.group_count += 1;
        }
        let opened = Opened::open("feed", embedded!("feed"))?.config(&config)?;
        Self::load(opened, queues)
    }

    /// Datagrams of each group that were redirected; those that a socket dropped are among them.
    ///
    /// # Errors
    /// [`BpfError::Map`]; [`BpfError::Invalid`] for the filter of anything else.
    pub fn redirected_by_group(&self) -> Result<[u64; FEED_GROUPS_MAX], BpfError> {
        let Some(map) = &self.by_group else {
            return Err(BpfError::Invalid { what: "this filter has no groups".into() });
        };
        let mut sums = [0; FEED_GROUPS_MAX];
        for (group, sum) in (0..).zip(&mut sums) {
            *sum = per_cpu::<u64>(map, group)?.iter().sum();
        }
        Ok(sums)
    }
}
