//! The inner frame: what the outer header takes over from it, and whether it is a tunnel's
//! packet itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{checksum, ecn::Ecn, ethernet, gre, ipv4, ipv6, udp, vxlan};

/// VLAN tags that are looked behind.
const TAGS_MAX: usize = 2;

/// The IP header in an inner frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ip {
    V4 { at: usize },
    V6 { at: usize },
}

/// What of an inner IP header the outer one may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Service {
    /// DSCP and ECN.
    pub(super) service: u8,
    pub(super) ttl: u8,
    pub(super) dont_fragment: bool,
}

/// The IPv4 header of a frame without VLAN tags, which nearly all are: found with one look at the
/// length. Of others [`ip`] tells.
#[inline]
pub(super) fn untagged_v4(frame: &[u8]) -> Option<&[u8; ipv4::HEADER_BYTES_MIN]> {
    let (ethernet, rest) = frame.split_first_chunk::<{ ethernet::HEADER_BYTES }>()?;
    let header = rest.first_chunk::<{ ipv4::HEADER_BYTES_MIN }>()?;
    let is_v4 = ethernet[ethernet::TYPE_OFFSET..] == ethernet::TYPE_IPV4.to_be_bytes();
    (is_v4 && header[0] >> 4 == 4).then_some(header)
}

/// Sender and receiver of an IPv4 header, to be compared.
#[inline]
pub(super) fn ends_v4(header: &[u8; ipv4::HEADER_BYTES_MIN]) -> u64 {
    header.last_chunk().map_or(0, |ends| u64::from_ne_bytes(*ends))
}

/// Where the IP header of a frame starts; `None` without one, or with a cut one.
#[inline]
pub(super) fn ip(frame: &[u8]) -> Option<Ip> {
    let mut type_at = ethernet::TYPE_OFFSET;
    let mut ethertype = word(frame, type_at)?;
    for _ in 0..TAGS_MAX {
        if !matches!(ethertype, ethernet::TYPE_VLAN | ethernet::TYPE_PROVIDER_VLAN) {
            break;
        }
        type_at += ethernet::VLAN_BYTES;
        ethertype = word(frame, type_at)?;
    }
    let at = type_at + 2;
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
    pub(super) fn of_v4(header: &[u8; ipv4::HEADER_BYTES_MIN]) -> Service {
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
            Ip::V4 { at } => Some(Service::of_v4(frame.get(at..)?.first_chunk()?)),
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

    /// Sets the congestion mark in place; a checksum of IPv4 stays as right as it was.
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

    /// Addresses of sender and receiver.
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

    /// Where the frame inside starts, if this packet is a tunnel's: VXLAN at its port, or GRE
    /// with a frame in it. Not checked beyond what is needed to tell; of a fragment it cannot
    /// be told.
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

/// The word at `at`, if it is there.
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// How a frame is nested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nesting {
    /// At most so many tunnels in it as allowed.
    Fine,
    /// More.
    TooDeep,
    /// It holds a packet between the ends of the tunnel that it is in: it goes round.
    Looped,
}

/// Looks for tunnels in an inner frame.
///
/// - `ends`: of the tunnel that the frame came through or is going to.
/// - `nested_max`: tunnels in the frame that are allowed.
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
