//! Encapsulation: outer headers are written into the headroom in front of a frame, which is neither
//! moved nor copied.

mod quoted;
mod reason;
mod service;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wire::{checksum, ethernet, flow, gre, ipv4, ipv6, udp, vxlan};

use crate::inner::{self, Nesting, Service};
use crate::ports::{FAST_HEADER_BYTES_MAX, FastHeader};
use crate::spec::{self, Carrier, Outer, Tunnel, TunnelError};

pub use reason::EncapDrop;

use service::{Bits, DONT_FRAGMENT_BIT, ServiceRule, TTL_BITS};

/// Maximum bytes of outer headers: Ethernet, IPv6, and GRE with all options or UDP and VXLAN.
pub const HEADERS_BYTES_MAX: usize =
    ethernet::HEADER_BYTES + ipv6::HEADER_BYTES + udp::HEADER_BYTES + vxlan::HEADER_BYTES;

const IP_AT: usize = ethernet::HEADER_BYTES;

/// Position of a frame in its buffer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketPlace {
    /// First byte.
    pub at: usize,
    /// Length.
    pub len: usize,
}

/// Per-frame values of the outer headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Hash of the inner flow, see [`wire::flow`]: source port of VXLAN, flow label of IPv6.
    pub flow_hash: u32,
    /// Position in the sending order: sequence number of GRE, and identification of IPv4 packets
    /// that may be fragmented (RFC 6864).
    pub sequence: u32,
}

/// Writes the outer headers of one tunnel.
#[derive(Debug, Clone)]
pub struct Encap {
    tunnel: Tunnel,
    outer: Outer,
    /// Constant part; lengths, marks and checksums are zero.
    headers: [u8; HEADERS_BYTES_MAX],
    headers_bytes: usize,
    /// IPv4 only: sum of the header in `headers`.
    ip_sum: u16,
    /// Sum of the pseudo header without the length, and of the UDP header in `headers`.
    udp_sum: u16,
    sequence_at: Option<usize>,
    shape: HeaderShape,
    /// Of the outer IP header.
    protocol: u8,
    /// Longest inner frame that fits into the MTU of the first link.
    inner_bytes_max: usize,
    /// The same of the whole path, as far as routers on it have reported; see [`Self::over_path`].
    path_bytes_max: usize,
    /// See [`Self::take_sent_bytes_max`]; one word for all copies.
    sent_bytes_max: Arc<AtomicU32>,
    rule: ServiceRule,
    /// Both ends of an IPv4 tunnel, as from [`inner::ends_v4`]; for IPv6 a value that matches no
    /// packet.
    ends_v4: u64,
}

/// Combination of headers, selected once, so that header offsets are compile-time constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderShape {
    VxlanV4,
    VxlanV6,
    GretapV4,
    GretapV6,
}

impl Encap {
    /// Prepares the headers. Errors: the tunnel or the rules are invalid.
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
                // `check` has ensured the range of `vni`; there is room.
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
                headers[IP_AT] = V4_FIRST_BYTE;
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
            shape: match (tunnel.carrier, tunnel.remote) {
                (Carrier::Vxlan { .. }, IpAddr::V4(_)) => HeaderShape::VxlanV4,
                (Carrier::Vxlan { .. }, IpAddr::V6(_)) => HeaderShape::VxlanV6,
                (Carrier::Gretap { .. }, IpAddr::V4(_)) => HeaderShape::GretapV4,
                (Carrier::Gretap { .. }, IpAddr::V6(_)) => HeaderShape::GretapV6,
            },
            protocol,
            inner_bytes_max: usize::from(outer.mtu_bytes) + IP_AT - headers_bytes,
            path_bytes_max: usize::MAX,
            sent_bytes_max: Arc::default(),
            rule: ServiceRule::new(&outer),
            ends_v4,
        })
    }

    /// Tunnel of the encapsulated frames.
    pub fn tunnel(&self) -> &Tunnel {
        &self.tunnel
    }

    /// Size of the outer headers, which is the headroom that a frame needs, in bytes.
    pub fn headers_bytes(&self) -> usize {
        self.headers_bytes
    }

    /// Longest inner frame that fits into the MTU of the path, in bytes from its Ethernet header on.
    #[inline(always)]
    pub fn inner_bytes_max(&self) -> usize {
        self.inner_bytes_max.min(self.path_bytes_max)
    }

    /// The same over a path with a narrower link, whose MTU a router has reported. Packets that routers may
    /// fragment are as large as before: they are those of IPv4 without "don't fragment".
    pub fn over_path(self, mtu_bytes: u16) -> Encap {
        let may_fragment = self.tunnel.remote.is_ipv4()
            && self.rule.fixed.0 & DONT_FRAGMENT_BIT == 0
            && self.rule.inherited & DONT_FRAGMENT_BIT == 0;
        let path_bytes_max = if may_fragment {
            usize::MAX
        } else {
            (usize::from(mtu_bytes) + IP_AT).saturating_sub(self.headers_bytes)
        };
        Encap { path_bytes_max, ..self }
    }

    /// Largest packet written since the last call, in bytes of the outer IP packet; 0 for none.
    pub(crate) fn take_sent_bytes_max(&self) -> u32 {
        match self.sent_bytes_max.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.sent_bytes_max.swap(0, Ordering::Relaxed),
        }
    }

    /// The headers for programs that write them by themselves; `None` if the headers have a checksum
    /// over the frame or a sequence number, or are IPv6.
    pub(crate) fn fast_header(&self) -> Option<FastHeader> {
        let is_plain =
            self.tunnel.remote.is_ipv4() && !self.outer.has_checksum && self.sequence_at.is_none();
        let mut bytes = [0; FAST_HEADER_BYTES_MAX];
        let headers = self.headers.get(..self.headers_bytes)?;
        bytes.get_mut(..self.headers_bytes)?.copy_from_slice(headers);
        is_plain.then_some(FastHeader {
            ends: self.ends_v4.to_ne_bytes(),
            fixed: self.rule.fixed.0,
            inherited: self.rule.inherited,
            ip_sum: self.ip_sum,
            inner_bytes_max: self.inner_bytes_max() as u32,
            vxlan_port: self.outer.vxlan_port,
            bytes,
            len_bytes: self.headers_bytes as u32,
        })
    }

    /// Writes the outer headers in front of a frame. Returns the place of the whole.
    ///
    /// - `buffer`: buffer of the frame, with [`Self::headers_bytes`] of headroom in front.
    /// - `frame`: the inner frame, from its Ethernet header on.
    ///
    /// On an error the buffer is untouched.
    #[inline(always)]
    pub fn prepend(
        &self,
        buffer: &mut [u8],
        frame: PacketPlace,
        mark: Mark,
    ) -> Result<PacketPlace, EncapDrop> {
        if frame.len < ethernet::HEADER_BYTES {
            return Err(EncapDrop::Runt);
        }
        if frame.len > self.inner_bytes_max() {
            self.may_exceed_path(buffer, frame)?;
        }
        let at = frame.at.checked_sub(self.headers_bytes).ok_or(EncapDrop::NoHeadroom)?;
        let end = frame.at.checked_add(frame.len).ok_or(EncapDrop::NoHeadroom)?;
        let whole = buffer.get_mut(at..end).ok_or(EncapDrop::NoHeadroom)?;
        match inner::untagged_v4(whole.get(self.headers_bytes..).unwrap_or(&[])) {
            // A packet of this tunnel has the tunnel's ends: other packets skip the full check.
            Some(header) if inner::ends_v4(header) != self.ends_v4 => {
                self.write(whole, at, self.rule.apply(Service::from_v4(header)), mark)
            }
            _ => self.prepend_to_any(whole, at, mark),
        }
    }

    /// Refuses a frame that does not fit the path, unless routers may fragment its packet.
    #[cold]
    fn may_exceed_path(&self, buffer: &[u8], frame: PacketPlace) -> Result<(), EncapDrop> {
        if frame.len > self.inner_bytes_max || self.tunnel.remote.is_ipv6() {
            return Err(EncapDrop::TooBig);
        }
        let end = frame.at.checked_add(frame.len).ok_or(EncapDrop::NoHeadroom)?;
        let inner = buffer.get(frame.at..end).ok_or(EncapDrop::NoHeadroom)?;
        match self.bits_of_any(inner)?.0 & DONT_FRAGMENT_BIT {
            0 => Ok(()),
            _ => Err(EncapDrop::TooBig),
        }
    }

    /// For frames that need further checks. Not inlined, so that the common path makes no call and
    /// saves no registers.
    #[inline(never)]
    fn prepend_to_any(
        &self,
        whole: &mut [u8],
        at: usize,
        mark: Mark,
    ) -> Result<PacketPlace, EncapDrop> {
        let bits = self.bits_of_any(whole.get(self.headers_bytes..).unwrap_or(&[]))?;
        self.write(whole, at, bits, mark)
    }

    /// Sets the sequence number of an encapsulated frame once the sending order is known. Does
    /// nothing if the tunnel has no sequence numbers.
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

    /// True if its headers have sequence numbers.
    pub fn has_sequence(&self) -> bool {
        self.sequence_at.is_some()
    }

    /// True if a packet has the headers of this tunnel, and they have sequence numbers.
    pub(crate) fn has_written(&self, whole: &[u8]) -> bool {
        let Some(sequence_at) = self.sequence_at else { return false };
        let (addresses_at, addresses_bytes) = match self.tunnel.remote {
            IpAddr::V4(_) => (IP_AT + ipv4::SRC_OFFSET, 8),
            IpAddr::V6(_) => (IP_AT + ipv6::SRC_OFFSET, 32),
        };
        // Flags and type of GRE, and the key, which is the word before the sequence number.
        let carrier_at = self.carrier_at();
        let key_at = if matches!(self.tunnel.carrier, Carrier::Gretap { key: Some(_) }) {
            sequence_at - 4
        } else {
            sequence_at
        };
        let ranges = [
            ethernet::TYPE_OFFSET..ethernet::TYPE_OFFSET + 2,
            addresses_at..addresses_at + addresses_bytes,
            carrier_at..carrier_at + gre::HEADER_BYTES_MIN,
            key_at..sequence_at,
        ];
        ranges.into_iter().all(|range| whole.get(range.clone()) == self.headers.get(range))
    }

    fn carrier_at(&self) -> usize {
        IP_AT
            + match self.tunnel.remote {
                IpAddr::V4(_) => ipv4::HEADER_BYTES_MIN,
                IpAddr::V6(_) => ipv6::HEADER_BYTES,
            }
    }

    /// Service fields of the outer IP header, by the rules and the inner frame.
    fn bits_of_any(&self, frame: &[u8]) -> Result<Bits, EncapDrop> {
        let Some(ip) = inner::ip(frame) else { return Ok(self.rule.fixed) };
        let ends = (self.tunnel.local, self.tunnel.remote);
        if ip.addresses(frame) == Some(ends)
            && inner::nesting(frame, ends, self.outer.vxlan_port, usize::MAX) == Nesting::Looped
        {
            return Err(EncapDrop::Looped);
        }
        Ok(ip.service(frame).map_or(self.rule.fixed, |inner| self.rule.apply(inner)))
    }

    /// Writes the headers.
    ///
    /// - `whole`: room for the headers, then the frame.
    /// - `at`: offset of `whole` in the buffer.
    #[inline(always)]
    fn write(
        &self,
        whole: &mut [u8],
        at: usize,
        bits: Bits,
        mark: Mark,
    ) -> Result<PacketPlace, EncapDrop> {
        let len = whole.len();
        // Read for each frame, and written only while frames grow.
        let sent_bytes = (len - IP_AT) as u32;
        if sent_bytes > self.sent_bytes_max.load(Ordering::Relaxed) {
            self.sent_bytes_max.fetch_max(sent_bytes, Ordering::Relaxed);
        }
        match self.shape {
            HeaderShape::VxlanV4 => {
                let Some(headers) = whole.first_chunk_mut() else { return NO_ROOM };
                *headers = *first::<VXLAN_V4_BYTES>(&self.headers);
                self.finish_v4(headers, len, bits, mark);
                self.finish_udp(headers, UDP_V4_AT, len, mark);
            }
            HeaderShape::VxlanV6 => {
                let Some(headers) = whole.first_chunk_mut() else { return NO_ROOM };
                *headers = *first::<VXLAN_V6_BYTES>(&self.headers);
                finish_v6(headers, len, bits, mark);
                self.finish_udp(headers, UDP_V6_AT, len, mark);
            }
            HeaderShape::GretapV4 => {
                let Some(headers) = whole.first_chunk_mut() else { return NO_ROOM };
                *headers = *first::<GRETAP_V4_BYTES_MIN>(&self.headers);
                self.finish_v4(headers, len, bits, mark);
                self.finish_gre(whole, UDP_V4_AT, mark);
            }
            HeaderShape::GretapV6 => {
                let Some(headers) = whole.first_chunk_mut() else { return NO_ROOM };
                *headers = *first::<GRETAP_V6_BYTES_MIN>(&self.headers);
                finish_v6(headers, len, bits, mark);
                self.finish_gre(whole, UDP_V6_AT, mark);
            }
        }
        if self.outer.has_checksum {
            self.fill_checksum(whole, at)
        } else {
            Ok(PacketPlace { at, len })
        }
    }

    #[inline(always)]
    fn finish_v4<const N: usize>(&self, headers: &mut [u8; N], len: usize, bits: Bits, mark: Mark) {
        // `inner_bytes_max` keeps it within the MTU, which is 16 bits.
        let total_bytes = (len - IP_AT) as u16;
        // Packets that are never fragmented need no identification (RFC 6864, section 4.1).
        let is_whole = bits.0 & DONT_FRAGMENT_BIT != 0;
        let (id, flags) =
            if is_whole { (0, ipv4::DONT_FRAGMENT) } else { (mark.sequence as u16, 0) };
        let sum = u32::from(self.ip_sum)
            + u32::from(bits.service())
            + u32::from(total_bytes)
            + u32::from(id)
            + u32::from(flags)
            + (bits.0 & TTL_BITS);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = checksum::finish(((sum & 0xffff) + (sum >> 16)) as u16);
        let first = u64::from(V4_FIRST_BYTE) << 56
            | u64::from(bits.service()) << 48
            | u64::from(total_bytes) << 32
            | u64::from(id) << 16
            | u64::from(flags);
        let second =
            u32::from(bits.ttl()) << 24 | u32::from(self.protocol) << 16 | u32::from(checksum);
        headers[IP_AT..IP_AT + 8].copy_from_slice(&first.to_be_bytes());
        headers[IP_AT + 8..IP_AT + 12].copy_from_slice(&second.to_be_bytes());
    }

    #[inline(always)]
    fn finish_udp<const N: usize>(
        &self,
        headers: &mut [u8; N],
        udp_at: usize,
        len: usize,
        mark: Mark,
    ) {
        let header = u64::from(flow::source_port(mark.flow_hash)) << 48
            | u64::from(self.outer.vxlan_port) << 32
            | u64::from((len - udp_at) as u16) << 16;
        headers[udp_at..udp_at + 8].copy_from_slice(&header.to_be_bytes());
    }

    /// Optional fields of the GRE header, including the sequence number.
    #[inline(always)]
    fn finish_gre(&self, whole: &mut [u8], gre_at: usize, mark: Mark) {
        let options_at = gre_at + gre::HEADER_BYTES_MIN;
        for at in (options_at..self.headers_bytes).step_by(4) {
            let option = self.headers.get(at..).and_then(|rest| rest.first_chunk::<4>());
            let place = whole.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>());
            if let (Some(option), Some(place)) = (option, place) {
                *place = *option;
            }
        }
        if let Some(at) = self.sequence_at
            && let Some(place) = whole.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
        {
            *place = mark.sequence.to_be_bytes();
        }
    }

    /// Checksum of the packet: the only part whose time grows with the frame.
    #[inline(never)]
    fn fill_checksum(&self, whole: &mut [u8], at: usize) -> Result<PacketPlace, EncapDrop> {
        let place = PacketPlace { at, len: whole.len() };
        let packet = whole.get_mut(self.carrier_at()..).unwrap_or(&mut []);
        if let Carrier::Gretap { .. } = self.tunnel.carrier {
            // There is room: the header was written.
            let filled = gre::fill_checksum(packet);
            debug_assert!(filled.is_ok());
            return Ok(place);
        }
        let len = packet.len() as u16;
        let Some((header, rest)) = packet.split_first_chunk_mut::<8>() else { return NO_ROOM };
        // `udp_sum` covers the VXLAN header; the pseudo header repeats the length.
        let frame = rest.get(vxlan::HEADER_BYTES..).unwrap_or(&[]);
        let port = u16::from_be_bytes([header[0], header[1]]);
        let sum = checksum::add(self.udp_sum, checksum::add(port, checksum::add(len, len)));
        let sum = checksum::add(sum, checksum::sum(frame));
        header[udp::CHECKSUM_OFFSET..].copy_from_slice(&checksum::finish_udp(sum).to_be_bytes());
        Ok(place)
    }
}

#[inline(always)]
fn finish_v6<const N: usize>(headers: &mut [u8; N], len: usize, bits: Bits, mark: Mark) {
    let label = flow::flow_label(mark.flow_hash);
    let first = 6 << 28 | u32::from(bits.service()) << 20 | label;
    let payload_bytes = (len - IP_AT - ipv6::HEADER_BYTES) as u16;
    headers[IP_AT..IP_AT + 4].copy_from_slice(&first.to_be_bytes());
    headers[IP_AT + 4..IP_AT + 6].copy_from_slice(&payload_bytes.to_be_bytes());
    headers[IP_AT + ipv6::HOPS_OFFSET] = bits.ttl();
}

/// IPv4 version and the length of a header without options.
const V4_FIRST_BYTE: u8 = 0x45;
const UDP_V4_AT: usize = IP_AT + ipv4::HEADER_BYTES_MIN;
const UDP_V6_AT: usize = IP_AT + ipv6::HEADER_BYTES;
const VXLAN_V4_BYTES: usize = UDP_V4_AT + udp::HEADER_BYTES + vxlan::HEADER_BYTES;
const VXLAN_V6_BYTES: usize = UDP_V6_AT + udp::HEADER_BYTES + vxlan::HEADER_BYTES;
const GRETAP_V4_BYTES_MIN: usize = UDP_V4_AT + gre::HEADER_BYTES_MIN;
const GRETAP_V6_BYTES_MIN: usize = UDP_V6_AT + gre::HEADER_BYTES_MIN;
/// Unreachable: the caller has checked the room for the headers.
const NO_ROOM: Result<PacketPlace, EncapDrop> = Err(EncapDrop::NoHeadroom);

/// First `N` bytes of the headers. A copy of constant length is a few moves, without a call.
#[inline(always)]
fn first<const N: usize>(headers: &[u8; HEADERS_BYTES_MAX]) -> &[u8; N] {
    const { assert!(N <= HEADERS_BYTES_MAX) };
    headers.first_chunk().unwrap_or(&[0; N])
}

/// An address that `check` has ensured to be IPv6.
fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(v6) => v6,
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
    }
}

/// Writes bytes that are known to fit.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + part.len()) {
        place.copy_from_slice(part);
    }
}
