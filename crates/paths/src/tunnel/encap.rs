//! Into the tunnel: the outer headers go into the headroom in front of a frame, which is
//! neither moved nor copied.

use std::net::{IpAddr, Ipv6Addr};

use wire::{checksum, ethernet, flow, gre, ipv4, ipv6, udp, vxlan};

use super::inner::{self, Nesting, Service};
use super::spec::{self, Carrier, Field, Outer, Tunnel, TunnelError};

/// Bytes of outer headers at most: Ethernet, IPv6, and GRE with all options or UDP and VXLAN.
pub const HEADERS_BYTES_MAX: usize =
    ethernet::HEADER_BYTES + ipv6::HEADER_BYTES + udp::HEADER_BYTES + vxlan::HEADER_BYTES;

const IP_AT: usize = ethernet::HEADER_BYTES;
/// Bits of the congestion mark in a class of service.
const ECN_MASK: u8 = 3;

/// Why a frame does not go into the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum EncapDrop {
    /// Shorter than an Ethernet header.
    #[error("shorter than an Ethernet header")]
    Runt,
    /// With the outer headers it is larger than the MTU; see [`Encap::inner_bytes_max`].
    #[error("larger than the tunnel's MTU")]
    TooBig,
    /// The headroom is too small, or the frame not in the buffer.
    #[error("not enough headroom")]
    NoHeadroom,
    /// It is a packet of this very tunnel: it goes round.
    #[error("a packet of this very tunnel")]
    Looped,
}

impl EncapDrop {
    /// Every reason, in the order of [`Self::index`].
    pub const ALL: [EncapDrop; 4] =
        [EncapDrop::Runt, EncapDrop::TooBig, EncapDrop::NoHeadroom, EncapDrop::Looped];

    /// Place in [`Self::ALL`], for an array of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            EncapDrop::Runt => "runt",
            EncapDrop::TooBig => "too_big",
            EncapDrop::NoHeadroom => "no_headroom",
            EncapDrop::Looped => "looped",
        }
    }
}

/// Where a frame lies in its buffer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// First byte.
    pub at: usize,
    /// Length.
    pub len: usize,
}

/// What changes from frame to frame beside the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Hash of the inner flow, see [`wire::flow`]: source port of VXLAN, flow label of IPv6.
    pub flow_hash: u32,
    /// Place in the order of sending: sequence number of GRE, and identification of IPv4
    /// packets that may be fragmented (RFC 6864).
    pub sequence: u32,
}

/// Writes the outer headers of one tunnel.
#[derive(Debug, Clone)]
pub struct Encap {
    tunnel: Tunnel,
    outer: Outer,
    /// All that stays the same; lengths, marks and checksums zero.
    headers: [u8; HEADERS_BYTES_MAX],
    headers_bytes: usize,
    /// Of IPv4: sum of the header in `headers`.
    ip_sum: u16,
    /// Sum of the pseudo header without the length, and of the UDP header in `headers`.
    udp_sum: u16,
    sequence_at: Option<usize>,
    /// See [`Self::inner_bytes_max`].
    inner_bytes_max: usize,
    rule: ServiceRule,
    /// Both ends of a tunnel over IPv4, as [`inner::ends_v4`] gives them; else of no packet.
    ends_v4: u64,
}

/// What the outer IP header says about service, and which of it is the inner one's.
#[derive(Debug, Clone, Copy)]
struct ServiceRule {
    /// When the inner frame has no say.
    fixed: Service,
    /// Bits of the class of service that are the inner packet's: at least those of the
    /// congestion mark, which is copied (RFC 6040, section 4.1, normal mode).
    service_mask: u8,
    inherits_ttl: bool,
    inherits_dont_fragment: bool,
}

impl ServiceRule {
    fn of(outer: &Outer) -> ServiceRule {
        let (Field::Fixed(ttl) | Field::Inherit(ttl)) = outer.ttl;
        let (Field::Fixed(dscp) | Field::Inherit(dscp)) = outer.dscp;
        let (Field::Fixed(dont_fragment) | Field::Inherit(dont_fragment)) = outer.dont_fragment;
        ServiceRule {
            fixed: Service { service: dscp << 2, ttl, dont_fragment },
            service_mask: if matches!(outer.dscp, Field::Inherit(_)) { 0xff } else { ECN_MASK },
            inherits_ttl: matches!(outer.ttl, Field::Inherit(_)),
            inherits_dont_fragment: matches!(outer.dont_fragment, Field::Inherit(_)),
        }
    }

    #[inline]
    fn apply(&self, inner: Service) -> Service {
        let mask = self.service_mask;
        let dont_fragment = match self.inherits_dont_fragment {
            true => inner.dont_fragment,
            false => self.fixed.dont_fragment,
        };
        Service {
            service: self.fixed.service & !mask | inner.service & mask,
            ttl: if self.inherits_ttl { inner.ttl.max(1) } else { self.fixed.ttl },
            dont_fragment,
        }
    }
}

impl Encap {
    /// Prepares the headers; fails when the tunnel or the rules make no sense.
    pub fn new(tunnel: Tunnel, outer: Outer) -> Result<Encap, TunnelError> {
        spec::check(&tunnel, &outer)?;
        let mut headers = [0; HEADERS_BYTES_MAX];
        let (ip_bytes, ethertype) = match tunnel.remote {
            IpAddr::V4(_) => (ipv4::HEADER_BYTES_MIN, ethernet::TYPE_IPV4),
            IpAddr::V6(_) => (ipv6::HEADER_BYTES, ethernet::TYPE_IPV6),
        };
        put(&mut headers, ethernet::DST_OFFSET, &outer.dst_mac);
        put(&mut headers, ethernet::SRC_OFFSET, &outer.src_mac);
        put(&mut headers, ethernet::TYPE_OFFSET, &ethertype.to_be_bytes());
        let carrier_at = IP_AT + ip_bytes;
        let mut udp_sum = 0;
        let (protocol, carrier_bytes, sequence_at) = match tunnel.carrier {
            Carrier::Vxlan { vni } => {
                let port = outer.vxlan_port.to_be_bytes();
                put(&mut headers, carrier_at + udp::DST_PORT_OFFSET, &port);
                let vxlan_at = carrier_at + udp::HEADER_BYTES;
                // `check` has seen to the range of `vni`; there is room.
                let written = vxlan::write(vni, &mut headers[vxlan_at..]);
                debug_assert!(written.is_ok());
                let bytes = udp::HEADER_BYTES + vxlan::HEADER_BYTES;
                udp_sum = checksum::sum(&headers[carrier_at..carrier_at + bytes]);
                (ipv4::PROTOCOL_UDP, bytes, None)
            }
            Carrier::Gretap { key } => {
                let repr = gre::Repr {
                    has_checksum: outer.has_checksum,
                    key,
                    sequence: outer.has_sequence.then_some(0),
                    ethertype: gre::TYPE_BRIDGED,
                };
                let written = repr.write(&mut headers[carrier_at..]);
                debug_assert!(written.is_ok());
                let sequence_at = repr.sequence_offset().map(|at| carrier_at + at);
                (gre::PROTOCOL, repr.header_bytes(), sequence_at)
            }
        };
        match (tunnel.local, tunnel.remote) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                headers[IP_AT] = 0x45;
                headers[IP_AT + ipv4::PROTOCOL_OFFSET] = protocol;
                put(&mut headers, IP_AT + ipv4::SRC_OFFSET, &src.octets());
                put(&mut headers, IP_AT + ipv4::DST_OFFSET, &dst.octets());
                let pseudo = checksum::pseudo_header_sum(src, dst, protocol, 0);
                udp_sum = checksum::add(udp_sum, pseudo);
            }
            (local, remote) => {
                let (src, dst) = (v6(local), v6(remote));
                headers[IP_AT] = 0x60;
                headers[IP_AT + ipv6::NEXT_OFFSET] = protocol;
                put(&mut headers, IP_AT + ipv6::SRC_OFFSET, &src.octets());
                put(&mut headers, IP_AT + ipv6::DST_OFFSET, &dst.octets());
                let pseudo = ipv6::pseudo_header_sum(src, dst, protocol, 0);
                udp_sum = checksum::add(udp_sum, pseudo);
            }
        }
        let headers_bytes = carrier_at + carrier_bytes;
        let ends_v4 = match tunnel.remote {
            IpAddr::V4(_) => headers[IP_AT..].first_chunk().map_or(0, inner::ends_v4),
            IpAddr::V6(_) => 0,
        };
        Ok(Encap {
            tunnel,
            outer,
            ip_sum: checksum::sum(&headers[IP_AT..IP_AT + ipv4::HEADER_BYTES_MIN]),
            headers,
            headers_bytes,
            udp_sum,
            sequence_at,
            inner_bytes_max: usize::from(outer.mtu_bytes) + IP_AT - headers_bytes,
            rule: ServiceRule::of(&outer),
            ends_v4,
        })
    }

    /// The tunnel that the frames go into.
    pub fn tunnel(&self) -> &Tunnel {
        &self.tunnel
    }

    /// Bytes that the outer headers take: the headroom that a frame must have.
    pub fn headers_bytes(&self) -> usize {
        self.headers_bytes
    }

    /// Longest inner frame that fits into the MTU, in bytes from its Ethernet header on.
    pub fn inner_bytes_max(&self) -> usize {
        self.inner_bytes_max
    }

    /// Puts the outer headers in front of a frame, and says where the whole lies.
    ///
    /// - `buffer`: what the frame lies in, with [`Self::headers_bytes`] of headroom in front.
    /// - `frame`: the inner frame, from its Ethernet header on.
    ///
    /// On an error the buffer is untouched.
    #[inline]
    pub fn prepend(&self, buffer: &mut [u8], frame: Place, mark: Mark) -> Result<Place, EncapDrop> {
        if frame.len < ethernet::HEADER_BYTES {
            return Err(EncapDrop::Runt);
        }
        if frame.len > self.inner_bytes_max() {
            return Err(EncapDrop::TooBig);
        }
        let at = frame.at.checked_sub(self.headers_bytes).ok_or(EncapDrop::NoHeadroom)?;
        let end = frame.at.checked_add(frame.len).ok_or(EncapDrop::NoHeadroom)?;
        let whole = buffer.get_mut(at..end).ok_or(EncapDrop::NoHeadroom)?;
        let service = self.service(&whole[self.headers_bytes..])?;
        let len = whole.len();
        self.put_headers(whole);
        match self.tunnel.remote {
            IpAddr::V4(_) => self.finish_v4(whole, service, mark),
            IpAddr::V6(_) => self.finish_v6(whole, service, mark),
        }
        Ok(Place { at, len })
    }

    /// Sets the sequence number of a frame that was encapsulated already, when the order of
    /// sending is known only then. Nothing without sequence numbers.
    pub fn set_sequence(&self, whole: &mut [u8], sequence: u32) {
        let Some(at) = self.sequence_at else { return };
        let Some(field) = whole.get_mut(at..at + 4) else { return };
        let old = checksum::sum(field);
        field.copy_from_slice(&sequence.to_be_bytes());
        if self.outer.has_checksum {
            let new = checksum::sum(&sequence.to_be_bytes());
            let carrier_at = self.carrier_at();
            let field = carrier_at + gre::CHECKSUM_OFFSET;
            if let Some(found) = inner::word(whole, field) {
                put(whole, field, &checksum::update(found, old, new).to_be_bytes());
            }
        }
    }

    /// Copies the prepared headers, in pieces of a fixed length: those are moves, and a copy of
    /// any other length is a call. The pieces overlap.
    #[inline]
    fn put_headers(&self, whole: &mut [u8]) {
        copy_piece(whole, &self.headers, 0);
        if self.headers_bytes > 2 * PIECE_BYTES {
            copy_piece(whole, &self.headers, PIECE_BYTES);
        }
        copy_piece(whole, &self.headers, self.headers_bytes - PIECE_BYTES);
    }

    fn carrier_at(&self) -> usize {
        IP_AT
            + match self.tunnel.remote {
                IpAddr::V4(_) => ipv4::HEADER_BYTES_MIN,
                IpAddr::V6(_) => ipv6::HEADER_BYTES,
            }
    }

    /// What the outer IP header says about service, by the rules and the inner frame.
    #[inline]
    fn service(&self, frame: &[u8]) -> Result<Service, EncapDrop> {
        match inner::untagged_v4(frame) {
            // Two packets of a tunnel have the same ends: only then a closer look is due.
            Some(header) if inner::ends_v4(header) != self.ends_v4 => {
                Ok(self.rule.apply(Service::of_v4(header)))
            }
            _ => self.service_of_any(frame),
        }
    }

    #[inline(never)]
    fn service_of_any(&self, frame: &[u8]) -> Result<Service, EncapDrop> {
        let Some(ip) = inner::ip(frame) else { return Ok(self.rule.fixed) };
        let ends = (self.tunnel.local, self.tunnel.remote);
        if ip.addresses(frame) == Some(ends)
            && inner::nesting(frame, ends, self.outer.vxlan_port, usize::MAX) == Nesting::Looped
        {
            return Err(EncapDrop::Looped);
        }
        Ok(ip.service(frame).map_or(self.rule.fixed, |inner| self.rule.apply(inner)))
    }

    #[inline(always)]
    fn finish_v4(&self, whole: &mut [u8], service: Service, mark: Mark) {
        // `inner_bytes_max` keeps it within the MTU, which is 16 bits.
        let total_bytes = (whole.len() - IP_AT) as u16;
        // Packets that stay whole need no identification (RFC 6864, section 4.1).
        let (id, flags) = match service.dont_fragment {
            true => (0, ipv4::DONT_FRAGMENT),
            false => (mark.sequence as u16, 0),
        };
        let ttl = u16::from(service.ttl) << 8;
        let sum = u32::from(self.ip_sum)
            + u32::from(service.service)
            + u32::from(total_bytes)
            + u32::from(id)
            + u32::from(flags)
            + u32::from(ttl);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = checksum::finish(((sum & 0xffff) + (sum >> 16)) as u16);
        let Some((header, rest)) = whole[IP_AT..].split_first_chunk_mut::<20>() else { return };
        header[ipv4::SERVICE_OFFSET] = service.service;
        header[2..4].copy_from_slice(&total_bytes.to_be_bytes());
        header[4..6].copy_from_slice(&id.to_be_bytes());
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        header[ipv4::TTL_OFFSET] = service.ttl;
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        self.finish_carrier(rest, mark);
    }

    #[inline(always)]
    fn finish_v6(&self, whole: &mut [u8], service: Service, mark: Mark) {
        let Some((header, rest)) = whole[IP_AT..].split_first_chunk_mut::<40>() else { return };
        let first = 6 << 28 | u32::from(service.service) << 20 | flow::flow_label(mark.flow_hash);
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        header[ipv6::HOPS_OFFSET] = service.ttl;
        self.finish_carrier(rest, mark);
    }

    /// - `packet`: from the UDP or GRE header to the end of the inner frame.
    #[inline(always)]
    fn finish_carrier(&self, packet: &mut [u8], mark: Mark) {
        match self.tunnel.carrier {
            Carrier::Vxlan { .. } => {
                let len = packet.len() as u16;
                let port = flow::source_port(mark.flow_hash);
                let Some(header) = packet.first_chunk_mut::<8>() else { return };
                header[..2].copy_from_slice(&port.to_be_bytes());
                header[4..6].copy_from_slice(&len.to_be_bytes());
                if self.outer.has_checksum {
                    self.fill_udp_checksum(packet, port);
                }
            }
            Carrier::Gretap { .. } => {
                if let Some(at) = self.sequence_at {
                    let at = at - self.carrier_at();
                    put(packet, at, &mark.sequence.to_be_bytes());
                }
                if self.outer.has_checksum {
                    fill_gre_checksum(packet);
                }
            }
        }
    }

    /// The only part that takes longer for longer frames. Out of the way of those without.
    #[inline(never)]
    fn fill_udp_checksum(&self, packet: &mut [u8], port: u16) {
        let len = packet.len() as u16;
        let Some((header, rest)) = packet.split_first_chunk_mut::<8>() else { return };
        // The VXLAN header is in `udp_sum`; the length is in the pseudo header, too.
        let frame = rest.get(vxlan::HEADER_BYTES..).unwrap_or(&[]);
        let lengths = checksum::add(len, len);
        let sum = checksum::add(self.udp_sum, checksum::add(port, lengths));
        let sum = checksum::add(sum, checksum::sum(frame));
        header[6..8].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
    }
}

#[inline(never)]
fn fill_gre_checksum(packet: &mut [u8]) {
    // There is room: the header was written.
    let filled = gre::fill_checksum(packet);
    debug_assert!(filled.is_ok());
}

/// An address that `check` has found to be of version 6.
fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(v6) => v6,
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
    }
}

/// Bytes that headers are copied by. All headers are at least that long, and no longer than
/// three times.
const PIECE_BYTES: usize = 32;
const _: () = assert!(HEADERS_BYTES_MAX <= 3 * PIECE_BYTES);
const _: () = assert!(IP_AT + ipv4::HEADER_BYTES_MIN >= PIECE_BYTES);

/// Copies the bytes at `at`, which the caller knows to be there.
#[inline]
fn copy_piece(to: &mut [u8], from: &[u8; HEADERS_BYTES_MAX], at: usize) {
    let from = from.get(at..).and_then(|from| from.first_chunk::<PIECE_BYTES>());
    let to = to.get_mut(at..).and_then(|to| to.first_chunk_mut::<PIECE_BYTES>());
    if let (Some(to), Some(from)) = (to, from) {
        *to = *from;
    }
}

/// Writes bytes that the caller knows to fit.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + part.len()) {
        place.copy_from_slice(part);
    }
}
