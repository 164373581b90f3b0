//! The inner frame: fields that the outer header copies, and detection of tunnels inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{checksum, ecn::Ecn, ethernet, gre, ipv4, ipv6, udp, vxlan};

/// The IP header in an inner frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ip {
    V4 { at: usize },
    V6 { at: usize },
}

/// Fields of an inner IP header that the outer one may copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Service {
    /// DSCP and ECN.
    pub(super) service: u8,
    pub(super) ttl: u8,
    pub(super) dont_fragment: bool,
}

/// IPv4 header of a frame without VLAN tags, the usual case, found with one length check. [`ip`]
/// handles all other frames.
#[inline]
pub(super) fn untagged_v4(frame: &[u8]) -> Option<&[u8; ipv4::HEADER_BYTES_MIN]> {
    let (ethernet, rest) = frame.split_first_chunk::<{ ethernet::HEADER_BYTES }>()?;
    let header = rest.first_chunk::<{ ipv4::HEADER_BYTES_MIN }>()?;
    let is_v4 = ethernet[ethernet::TYPE_OFFSET..] == ethernet::TYPE_IPV4.to_be_bytes();
    (is_v4 && header[0] >> 4 == 4).then_some(header)
}

/// Source and destination of an IPv4 header as one word, for comparison.
#[inline]
pub(super) fn ends_v4(header: &[u8; ipv4::HEADER_BYTES_MIN]) -> u64 {
    header.last_chunk().map_or(0, |ends| u64::from_ne_bytes(*ends))
}

/// IP header of a frame; `None` if it is missing or truncated.
#[inline]
pub(super) fn ip(frame: &[u8]) -> Option<Ip> {
    let (ethertype, at) = ethernet::network(frame)?;
    let rest = frame.get(at..)?;
    match ethertype {
        ethernet::TYPE_IPV4 => {
            let is_whole = rest.len() >= ipv4::HEADER_BYTES_MIN && rest[0] >> 4 == 4;
            is_whole.then_some(Ip::V4 { at })
        }
        ethernet::TYPE_IPV6 => {
            let is_whole = rest.len() >= ipv6::HEADER_BYTES && rest[0] >> 4 == 6;
            is_whole.then_some(Ip::V6 { at })
        }
        _ => None,
    }
}

impl Service {
    #[inline]
    pub(super) fn from_v4(header: &[u8; ipv4::HEADER_BYTES_MIN]) -> Service {
        Service {
            service: header[ipv4::SERVICE_OFFSET],
            ttl: header[ipv4::TTL_OFFSET],
            dont_fragment: u16::from(header[ipv4::FRAGMENT_OFFSET]) << 8 & ipv4::DONT_FRAGMENT != 0,
        }
    }
}

impl Ip {
    #[inline]
    pub(super) fn service(self, frame: &[u8]) -> Option<Service> {
        match self {
            Ip::V4 { at } => Some(Service::from_v4(frame.get(at..)?.first_chunk()?)),
            Ip::V6 { at } => {
                let header: &[u8; ipv6::HEADER_BYTES] = frame.get(at..)?.first_chunk()?;
                Some(Service {
                    service: (word(header, 0)? >> 4) as u8,
                    ttl: header[ipv6::HOPS_OFFSET],
                    dont_fragment: true,
                })
            }
        }
    }

    /// Sets the congestion mark in place and updates the IPv4 checksum.
    pub(super) fn set_ecn(self, frame: &mut [u8], ecn: Ecn) {
        let at = match self {
            Ip::V4 { at } | Ip::V6 { at } => at,
        };
        let Some(old) = word(frame, at) else { return };
        let new = match self {
            Ip::V4 { .. } => old & !3 | ecn as u16,
            Ip::V6 { .. } => old & !0x30 | (ecn as u16) << 4,
        };
        frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
        if let Ip::V4 { .. } = self
            && let Some(found) = word(frame, at + ipv4::CHECKSUM_OFFSET)
        {
            let updated = checksum::update(found, old, new).to_be_bytes();
            let checksum_at = at + ipv4::CHECKSUM_OFFSET;
            frame[checksum_at..checksum_at + 2].copy_from_slice(&updated);
        }
    }

    /// Source and destination address.
    pub(super) fn addresses(self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        Some(match self {
            Ip::V4 { at } => {
                let [src, dst] = [ipv4::SRC_OFFSET, ipv4::DST_OFFSET]
                    .map(|offset| frame.get(at + offset..)?.first_chunk::<4>().copied());
                (Ipv4Addr::from(src?).into(), Ipv4Addr::from(dst?).into())
            }
            Ip::V6 { at } => {
                let [src, dst] = [ipv6::SRC_OFFSET, ipv6::DST_OFFSET]
                    .map(|offset| frame.get(at + offset..)?.first_chunk::<16>().copied());
                (Ipv6Addr::from(src?).into(), Ipv6Addr::from(dst?).into())
            }
        })
    }

    /// Offset of the encapsulated frame if this is a tunnel packet: VXLAN to `vxlan_port`, or GRE
    /// with an Ethernet frame. Checked only as far as needed; `None` for fragments.
    pub(super) fn frame_inside(self, frame: &[u8], vxlan_port: u16) -> Option<usize> {
        let (protocol, at) = match self {
            Ip::V4 { at } => {
                let header = ipv4::Header::parse(frame.get(at..)?, frame.len() - at).ok()?;
                if header.is_fragment() {
                    return None;
                }
                (header.protocol(), at + header.header_bytes())
            }
            Ip::V6 { at } => {
                let packet = frame.get(at..)?;
                let header = ipv6::Header::parse(packet, packet.len()).ok()?;
                let upper = ipv6::upper(packet, &header);
                if upper.is_opaque {
                    return None;
                }
                (upper.protocol, at + upper.at)
            }
        };
        match protocol {
            ipv4::PROTOCOL_UDP => {
                let is_vxlan = word(frame, at + udp::DST_PORT_OFFSET)? == vxlan_port;
                is_vxlan.then_some(at + udp::HEADER_BYTES + vxlan::HEADER_BYTES)
            }
            gre::PROTOCOL => {
                let header = gre::Repr::parse(frame.get(at..)?).ok()?;
                let is_bridged = header.ethertype == gre::TYPE_BRIDGED;
                is_bridged.then_some(at + header.header_bytes())
            }
            _ => None,
        }
    }
}

/// Word at `at`; `None` beyond the end.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Result of [`nesting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nesting {
    /// No more tunnels than allowed.
    Fine,
    /// More tunnels than allowed.
    TooDeep,
    /// Contains a packet between the ends of its own tunnel: a loop.
    Looped,
}

/// Detects tunnels in an inner frame.
///
/// - `ends`: ends of the tunnel that carries the frame.
/// - `nested_max`: allowed number of tunnels inside the frame.
pub(super) fn nesting(
    mut frame: &[u8],
    ends: (IpAddr, IpAddr),
    vxlan_port: u16,
    nested_max: usize,
) -> Nesting {
    let mut depth = 0;
    while let Some(ip) = ip(frame) {
        let Some(inside) = ip.frame_inside(frame, vxlan_port) else { break };
        let addresses = ip.addresses(frame);
        if addresses == Some(ends) || addresses == Some((ends.1, ends.0)) {
            return Nesting::Looped;
        }
        depth += 1;
        if depth > nested_max {
            return Nesting::TooDeep;
        }
        frame = frame.get(inside..).unwrap_or(&[]);
    }
    Nesting::Fine
}
