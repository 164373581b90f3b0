//! Packets that no counter accounts for: netfilter and some routes drop without counting.

use super::{Losses, Window};

/// Packets of IPv4 received, and what became of them.
///
/// Source: net/ipv4/ip_input.c and ip_forward.c; Documentation/networking/snmp_counter.rst.
const DELIVERED: [&str; 11] = [
    "IpInDelivers",
    "IpForwDatagrams",
    "IpInHdrErrors",
    "IpInAddrErrors",
    "IpInDiscards",
    "IpExtInNoRoutes",
    "IpExtInTruncatedPkts",
    "IpExtInCsumErrors",
    "TcpExtIPReversePathFilter",
    // Those for groups and broadcasts without a reader are dropped as a matter of course.
    "IpExtInMcastPkts",
    "IpExtInBcastPkts",
];
const FRAGMENTS: [&str; 1] = ["IpReasmReqds"];
const REASSEMBLED: [&str; 1] = ["IpReasmOKs"];

/// Packets of both IP versions on their way out.
const LEAVING: [&str; 4] =
    ["IpForwDatagrams", "IpOutRequests", "Ip6OutForwDatagrams", "Ip6OutRequests"];
const LEFT: [&str; 8] = [
    "IpOutTransmits",
    "Ip6OutTransmits",
    "IpOutDiscards",
    "Ip6OutDiscards",
    "IpFragFails",
    "Ip6FragFails",
    "IpOutNoRoutes",
    "Ip6OutNoRoutes",
];

/// Packets that may be lost to the inexact reading of counters that grow.
const UNCERTAIN_SHARE: u64 = 100;

impl Window {
    /// Packets of IPv4 that came in and were neither delivered nor forwarded nor counted as dropped, within the window:
    /// dropped in the hooks prerouting and input of netfilter, before Linux 6.7 forward too, by a route of the kinds
    /// blackhole, unreachable and prohibit, or for an impossible source.
    pub(crate) fn vanished_received(&self) -> Losses {
        let fragments = self.sum(&FRAGMENTS).now.saturating_sub(self.sum(&REASSEMBLED).now);
        let received = self.sum(&["IpInReceives"]).now;
        let known = self.sum(&DELIVERED).now + fragments;
        self.vanished(received, known)
    }

    /// Packets of programs or to be forwarded that did not reach an interface and were not counted as dropped, within
    /// the window: dropped in the hooks forward, output and postrouting of netfilter. None before Linux 6.7.
    pub(crate) fn vanished_leaving(&self) -> Losses {
        match self.latest("IpOutTransmits") {
            Some(_) => self.vanished(self.sum(&LEAVING).now, self.sum(&LEFT).now),
            None => self.losses(0, 0),
        }
    }

    fn vanished(&self, begun: u64, ended: u64) -> Losses {
        let now = begun.saturating_sub(ended);
        let is_certain = now >= 3 && now > begun / UNCERTAIN_SHARE;
        self.losses(0, if is_certain { now } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_are_delivered_forwarded_or_counted_as_dropped_have_not_vanished() {
        let all = [("IpInReceives", 0, 100), ("IpInDelivers", 0, 60), ("IpForwDatagrams", 0, 30)];
        let lost = [all.as_slice(), &[("IpExtInNoRoutes", 5, 10)]].concat();
        assert_eq!(Window::with_counters(&lost).vanished_received().now, 5);
        let counted = [lost.as_slice(), &[("IpInHdrErrors", 0, 5)]].concat();
        assert_eq!(Window::with_counters(&counted).vanished_received().now, 0);
    }

    #[test]
    fn packets_that_leave_are_balanced_where_the_kernel_counts_them() {
        let all = [("IpForwDatagrams", 0, 50), ("IpOutRequests", 0, 50)];
        assert_eq!(Window::with_counters(&all).vanished_leaving().now, 0);
        let counted =
            [all.as_slice(), &[("IpOutTransmits", 0, 80), ("Ip6OutRequests", 0, 0)]].concat();
        assert_eq!(Window::with_counters(&counted).vanished_leaving().now, 20);
        let few = [("IpOutRequests", 0, 10_000), ("IpOutTransmits", 0, 9_990)];
        assert_eq!(Window::with_counters(&few).vanished_leaving().now, 0);
    }
}
