//! Explanations for a silent group, from counters of the host.

use std::fs;

use io::multicast::Group;

/// Snapshot of host counters.
#[derive(Debug, Clone, Default)]
pub(super) struct HostCounters {
    /// Packets dropped by the reverse-path filter.
    reverse_path_drops: u64,
    /// Name, received packets and received multicast frames of every interface.
    interfaces: Vec<(String, u64, u64)>,
}

impl HostCounters {
    pub(super) fn now() -> Self {
        let netstat = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
        let dev = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        HostCounters {
            reverse_path_drops: reverse_path_drops(&netstat),
            interfaces: interfaces(&dev),
        }
    }

    /// Best explanation of the silence, with a remedy.
    ///
    /// - `heard`: datagrams of the group so far.
    pub(super) fn explain(
        &self,
        earlier: &HostCounters,
        group: &Group,
        seconds: u64,
        heard: u64,
    ) -> String {
        let ifname = &group.ifname;
        let begin = format!("nothing from {} on {ifname} for {seconds} s", group.address);
        let link = host::net::link(group.ifindex);
        match link {
            Err(_) => return format!("{begin}: {ifname} was removed"),
            Ok(link) if !link.is_up => {
                return format!("{begin}: {ifname} is down; ip link set {ifname} up");
            }
            Ok(link) if !link.has_carrier && !link.is_loopback => {
                return format!("{begin}: {ifname} has no carrier; check the cable or the peer");
            }
            Ok(_) => {}
        }
        if heard > 0 {
            return format!(
                "{begin}, after {heard} datagrams: the sender has stopped, or a switch dropped the \
                 membership (IGMP snooping without a querier)"
            );
        }
        let filter = rp_filter(ifname);
        let dropped = self.reverse_path_drops.saturating_sub(earlier.reverse_path_drops);
        if dropped > 0 && filter > 0 {
            return format!(
                "{begin}: the kernel dropped {dropped} packets because the route to their sender \
                 is not through the receiving interface (rp_filter {filter}); add a route to the \
                 sender through {ifname}, or sysctl -w net.ipv4.conf.{ifname}.rp_filter=0 \
                 net.ipv4.conf.all.rp_filter=0"
            );
        }
        let grown = |name: &str| {
            let of = |seen: &HostCounters| {
                let found = seen.interfaces.iter().find(|(known, ..)| known == name);
                found.map_or((0, 0), |(_, packets, multicast)| (*packets, *multicast))
            };
            let (now, then) = (of(self), of(earlier));
            (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))
        };
        let (own, _) = grown(ifname);
        let busiest = (self.interfaces.iter())
            .filter(|(name, ..)| name != ifname)
            .map(|(name, ..)| (grown(name).1, name))
            .max()
            .filter(|(multicast, _)| *multicast > 0);
        let from = group.source.map_or(String::new(), |source| format!(", the --source {source}"));
        match (own, busiest) {
            (0, Some((multicast, other))) => format!(
                "{begin}, and no other packets; {other} received {multicast} multicast frames in \
                 that time: check the interface (-i {other})"
            ),
            (0, None) => format!(
                "{begin}, and no other packets: check the interface, and that the switch \
                 forwards the group (IGMP snooping without a querier)"
            ),
            (own, _) => format!(
                "{begin}, but {own} other packets: check group and port{from}, and that the \
                 switch forwards the group (IGMP snooping without a querier)"
            ),
        }
    }
}

/// Effective setting: the stricter of the interface's and `all`.
fn rp_filter(ifname: &str) -> u8 {
    let read = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    read("all").max(read(ifname))
}

/// `IPReversePathFilter` of the pair of lines that begin with `TcpExt:`.
fn reverse_path_drops(netstat: &str) -> u64 {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    let found = pairs.find(|(name, _)| *name == "IPReversePathFilter");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Name, packets and multicast frames received, from the table of interfaces.
fn interfaces(dev: &str) -> Vec<(String, u64, u64)> {
    let row = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> =
            counters.split_whitespace().map_while(|field| field.parse().ok()).collect();
        Some((name.trim().to_owned(), *counters.get(1)?, *counters.get(7)?))
    };
    dev.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_the_kernels_tables() {
        let netstat = "TcpExt: SyncookiesSent IPReversePathFilter Other\nTcpExt: 1 42 3\n\
                       IpExt: InNoRoutes\nIpExt: 0\n";
        assert_eq!(reverse_path_drops(netstat), 42);
        assert_eq!(reverse_path_drops("nothing"), 0);
        let dev = "Inter-|   Receive                            |  Transmit\n \
                   face |bytes    packets errs drop fifo frame compressed multicast|bytes\n\
                   eth1: 1000 17 0 0 0 0 0 9 500 5 0 0 0 0 0 0\n";
        assert_eq!(interfaces(dev), [("eth1".to_owned(), 17, 9)]);
    }
}
