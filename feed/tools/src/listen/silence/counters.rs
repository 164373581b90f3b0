//! Counters of the host that tell where datagrams of a group end.

use std::fs;

use host::net::{snmp_counter, snmp_table};

/// Snapshot of the counters of the calling thread's namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct HostCounters {
    /// Packets dropped by the reverse-path filter.
    pub(super) reverse_path: u64,
    /// Multicast packets that passed the rules before routing.
    pub(super) routed_multicast: u64,
    /// Packets with a wrong IPv4 header.
    pub(super) bad_header: u64,
    /// Datagrams with a wrong UDP checksum.
    pub(super) bad_checksum: u64,
    /// Datagrams that found a receive buffer full.
    pub(super) full_buffer: u64,
    /// Datagrams whose fragments did not all arrive in time, or had no room.
    pub(super) not_reassembled: u64,
    /// Name, received packets and received multicast frames of every interface.
    pub(super) interfaces: Vec<(String, u64, u64)>,
}

impl HostCounters {
    pub(super) fn now() -> Self {
        let netstat = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
        let dev = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        HostCounters::parse(&snmp_table().unwrap_or_default(), &netstat, &dev)
    }

    fn parse(snmp: &str, netstat: &str, dev: &str) -> Self {
        HostCounters {
            reverse_path: known_counter(netstat, "TcpExt", "IPReversePathFilter"),
            routed_multicast: known_counter(netstat, "IpExt", "InMcastPkts"),
            bad_header: known_counter(snmp, "Ip", "InHdrErrors"),
            bad_checksum: known_counter(snmp, "Udp", "InCsumErrors"),
            full_buffer: known_counter(snmp, "Udp", "RcvbufErrors"),
            not_reassembled: known_counter(snmp, "Ip", "ReasmFails"),
            interfaces: interfaces(dev),
        }
    }

    /// Growth since an earlier snapshot.
    pub(super) fn since(&self, earlier: &HostCounters) -> HostCounters {
        let grown = |count: fn(&HostCounters) -> u64| count(self).saturating_sub(count(earlier));
        HostCounters {
            reverse_path: grown(|counters| counters.reverse_path),
            routed_multicast: grown(|counters| counters.routed_multicast),
            bad_header: grown(|counters| counters.bad_header),
            bad_checksum: grown(|counters| counters.bad_checksum),
            full_buffer: grown(|counters| counters.full_buffer),
            not_reassembled: grown(|counters| counters.not_reassembled),
            interfaces: self
                .interfaces
                .iter()
                .map(|(name, packets, multicast): &(String, u64, u64)| {
                    let before = earlier.interfaces.iter().find(|(known, ..)| known == name);
                    let (_, packets_before, multicast_before) =
                        before.cloned().unwrap_or_else(|| (name.clone(), 0, 0));
                    (
                        name.clone(),
                        packets.saturating_sub(packets_before),
                        multicast.saturating_sub(multicast_before),
                    )
                })
                .collect(),
        }
    }

    /// Packets that an interface received.
    pub(super) fn packets(&self, ifname: &str) -> u64 {
        let found = self.interfaces.iter().find(|(name, ..)| name == ifname);
        found.map_or(0, |(_, packets, _)| *packets)
    }

    /// The other interface with most multicast frames, and their number, if any.
    pub(super) fn busiest_other(&self, ifname: &str) -> Option<(&str, u64)> {
        let others = self.interfaces.iter().filter(|(name, ..)| name != ifname);
        let busiest = others.map(|(name, _, multicast)| (name.as_str(), *multicast));
        busiest.max_by_key(|(_, multicast)| *multicast).filter(|(_, multicast)| *multicast > 0)
    }
}

/// A counter of a table; 0 if the kernel does not have it.
fn known_counter(table: &str, protocol: &str, name: &str) -> u64 {
    snmp_counter(table, protocol, name).unwrap_or(0)
}

/// Effective setting: the stricter of the interface's and `all`.
pub(super) fn rp_filter(ifname: &str) -> u8 {
    let settings = ["all", ifname].map(|name| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    });
    settings[0].max(settings[1])
}

/// Name, packets and multicast frames received, from the table of interfaces.
fn interfaces(dev: &str) -> Vec<(String, u64, u64)> {
    dev.lines()
        .filter_map(|line: &str| {
            let (name, counters) = line.split_once(':')?;
            let counters: Vec<u64> =
                counters.split_whitespace().map_while(|field| field.parse().ok()).collect();
            Some((name.trim().to_owned(), *counters.get(1)?, *counters.get(7)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_tables_and_grow() {
        let snmp =
            "Ip: InHdrErrors ReasmFails\nIp: 3 4\nUdp: InCsumErrors RcvbufErrors\nUdp: 5 6\n";
        let netstat = "TcpExt: SyncookiesSent IPReversePathFilter Other\nTcpExt: 1 42 3\n\
                       IpExt: InNoRoutes InMcastPkts\nIpExt: 0 70\n";
        let dev = "Inter-|   Receive                            |  Transmit\n \
                   face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
                   eth1: 1000 17 0 0 0 0 0 9 500 5 0 0 0 0 0 0\n\
                   eth2: 1000 20 0 0 0 0 0 4 500 5 0 0 0 0 0 0\n";
        let counters = HostCounters::parse(snmp, netstat, dev);
        assert_eq!((counters.bad_header, counters.not_reassembled), (3, 4));
        assert_eq!((counters.bad_checksum, counters.full_buffer), (5, 6));
        assert_eq!((counters.reverse_path, counters.routed_multicast), (42, 70));
        let earlier = HostCounters { reverse_path: 40, ..HostCounters::parse("", "", "") };
        let grown = counters.since(&earlier);
        assert_eq!((grown.reverse_path, grown.packets("eth1")), (2, 17));
        assert_eq!(grown.busiest_other("eth1"), Some(("eth2", 4)));
        assert_eq!(counters.since(&counters).busiest_other("eth1"), None);
    }
}
