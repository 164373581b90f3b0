//! The MTU of a path, as routers on it report it: which reports are believed, and for how long.
//!
//! Source: RFC 1191 and RFC 8201; the times are those of Linux (mtu_expires, net/ipv4/route.c).

use std::net::IpAddr;

/// Time for which a report holds; then larger packets are tried again.
pub(crate) const LIFE_NS: u64 = 600_000_000_000;
/// Packets sent within this time, and at most twice that, may still be reported.
const RECENT_NS: u64 = 10_000_000_000;

/// Least MTU that a report over IPv4 sets: inner packets of 576 bytes fit with any headers of a tunnel. Senders go no
/// lower: Linux takes an MTU below 552 bytes for 552 (min_pmtu, net/ipv4/route.c).
const MTU_V4_BYTES_MIN: u16 = 576 + 50;
/// The same over IPv6.
///
/// Source: RFC 8201, section 4.
const MTU_V6_BYTES_MIN: u16 = 1280;

/// A reported MTU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learnt {
    pub(crate) mtu_bytes: u16,
    /// Time at which it is forgotten.
    pub(crate) until_ns: u64,
}

/// Largest packet sent into a tunnel within [`RECENT_NS`], and within the interval before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecentSizes {
    bytes_max: [u32; 2],
    begun_ns: u64,
}

impl RecentSizes {
    /// - `bytes`: 0 if nothing was sent.
    pub(crate) fn note(&mut self, bytes: u32, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.begun_ns);
        if passed_ns >= RECENT_NS {
            let before = if passed_ns < 2 * RECENT_NS { self.bytes_max[0] } else { 0 };
            *self = RecentSizes { bytes_max: [0, before], begun_ns: now_ns };
        }
        self.bytes_max[0] = self.bytes_max[0].max(bytes);
    }

    /// As of the last [`Self::note`].
    pub(crate) fn bytes_max(&self) -> u32 {
        self.bytes_max[0].max(self.bytes_max[1])
    }
}

/// A report about a packet of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MtuReport {
    /// Far end of the tunnel.
    pub(crate) remote: IpAddr,
    /// MTU that the router reports; 0 if it does not tell.
    pub(crate) mtu_bytes: u32,
    /// Length of the packet that it could not send.
    pub(crate) packet_bytes: u32,
}

/// Result of [`judge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MtuJudgement {
    /// The path carries less than was known.
    Lowered(u16),
    /// The MTU in force, reported again.
    Renewed,
    /// About a packet sent before the MTU in force was known.
    Late,
    /// No packet in flight can have caused it.
    Refused,
}

/// Decides on a report.
///
/// An IPv4 MTU below the minimum counts as the minimum; one of IPv6 is refused. So a forged report costs no more than
/// the way down to the minimum.
///
/// - `known_bytes`: MTU in force.
/// - `sent_bytes_max`: largest packet that was sent recently, see [`RecentSizes`].
pub(crate) fn judge(report: &MtuReport, known_bytes: u16, sent_bytes_max: u32) -> MtuJudgement {
    let MtuReport { remote, mtu_bytes, packet_bytes } = *report;
    let floor = mtu_bytes_min(remote);
    if remote.is_ipv6() && mtu_bytes < floor.into() {
        return MtuJudgement::Refused;
    }
    let mtu_bytes = u16::try_from(mtu_bytes).unwrap_or(u16::MAX).max(floor);
    if packet_bytes > sent_bytes_max || packet_bytes <= mtu_bytes.into() {
        return MtuJudgement::Refused;
    }
    match mtu_bytes.cmp(&known_bytes) {
        std::cmp::Ordering::Less => MtuJudgement::Lowered(mtu_bytes),
        std::cmp::Ordering::Equal => MtuJudgement::Renewed,
        std::cmp::Ordering::Greater => MtuJudgement::Late,
    }
}

fn mtu_bytes_min(remote: IpAddr) -> u16 {
    if remote.is_ipv4() { MTU_V4_BYTES_MIN } else { MTU_V6_BYTES_MIN }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

    fn judgement(remote: IpAddr, mtu_bytes: u32, packet_bytes: u32) -> MtuJudgement {
        judge(&MtuReport { remote, mtu_bytes, packet_bytes }, 1500, 1500)
    }

    #[test]
    fn report_lowers_the_mtu_but_not_below_the_minimum_of_the_ip_version() {
        assert_eq!(judgement(V4, 1300, 1500), MtuJudgement::Lowered(1300));
        for below in [0, 1, 68, 625, 626] {
            assert_eq!(judgement(V4, below, 1500), MtuJudgement::Lowered(626), "{below}");
        }
        assert_eq!(judgement(V6, 1280, 1500), MtuJudgement::Lowered(1280));
        assert_eq!(judgement(V6, 1279, 1500), MtuJudgement::Refused);
        assert_eq!(judgement(V6, 0, 1500), MtuJudgement::Refused);
    }

    #[test]
    fn report_about_a_packet_that_was_not_sent_or_that_would_fit_is_refused() {
        assert_eq!(judgement(V4, 1300, 1501), MtuJudgement::Refused, "none was that large");
        assert_eq!(judgement(V4, 1300, 1300), MtuJudgement::Refused, "it fits");
        assert_eq!(judgement(V4, 1500, 1500), MtuJudgement::Refused, "it fits");
        assert_eq!(judgement(V4, 0, 500), MtuJudgement::Refused, "it fits into the minimum");
        assert_eq!(judgement(V4, u32::MAX, 1500), MtuJudgement::Refused);
        let report = MtuReport { remote: V4, mtu_bytes: 1300, packet_bytes: 1500 };
        assert_eq!(judge(&report, 1500, 0), MtuJudgement::Refused, "nothing was sent");
    }

    #[test]
    fn report_about_a_packet_of_before_raises_nothing() {
        let report = MtuReport { remote: V4, mtu_bytes: 1300, packet_bytes: 1500 };
        assert_eq!(judge(&report, 1300, 1500), MtuJudgement::Renewed);
        assert_eq!(judge(&report, 1200, 1500), MtuJudgement::Late);
    }

    #[test]
    fn size_is_recent_for_one_to_two_intervals() {
        let mut sizes = RecentSizes::default();
        sizes.note(1500, 1_000);
        sizes.note(100, RECENT_NS - 1);
        assert_eq!(sizes.bytes_max(), 1500);
        let begun_ns = RECENT_NS + 5_000;
        sizes.note(200, begun_ns);
        assert_eq!(sizes.bytes_max(), 1500, "of the interval before");
        sizes.note(300, begun_ns + RECENT_NS);
        assert_eq!(sizes.bytes_max(), 300);
        sizes.note(0, begun_ns + 10 * RECENT_NS);
        assert_eq!(sizes.bytes_max(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn no_report_lowers_the_mtu_below_the_minimum_or_raises_it(
            is_v6: bool, mtu_bytes: u32, packet_bytes in 0_u32..70_000, known_bytes in 1280_u16.., sent: u16,
        ) {
            let remote = if is_v6 { V6 } else { V4 };
            let report = MtuReport { remote, mtu_bytes, packet_bytes };
            if let MtuJudgement::Lowered(lower) = judge(&report, known_bytes, sent.into()) {
                prop_assert!(lower >= mtu_bytes_min(remote) && lower < known_bytes);
                prop_assert!(u32::from(lower) < packet_bytes && packet_bytes <= sent.into());
            }
        }
    }
}
