//! The engines' fast path: Ethernet, IP and UDP taken as one header.
//!
//! Sending: a [`UdpTemplate`] is made once and written into every frame once; per packet, only
//! the UDP checksum is completed. Receiving: [`udp_payload`] checks a frame and locates its
//! payload. Echoing without a copy: [`swap_for_echo`], or [`Received`] for a ping.
//!
//! Frames may have one VLAN tag; received ones also IPv4 options, which frames built here have not. Extension
//! headers of IPv6 are refused, and so are its datagrams without a checksum.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use crate::checksum;
use crate::error::{front, front_mut};
use crate::flow::Tuple;
use crate::probe::{self, ProbeError};
use crate::{FrameError, ethernet, ipv4, ipv6, udp};

/// Bytes of the Ethernet, IPv4 and UDP header of a [`UdpTemplate`].
pub const HEADERS_BYTES: usize = 42;
/// The same with IPv6.
pub const HEADERS_V6_BYTES: usize = HEADERS_BYTES - ipv4::HEADER_BYTES_MIN + ipv6::HEADER_BYTES;
/// The same with a VLAN tag.
const HEADERS_BYTES_MAX: usize = HEADERS_V6_BYTES + ethernet::VLAN_BYTES;
/// Offset of the IP header in a frame without VLAN tag.
const IP_OFFSET: usize = ethernet::HEADER_BYTES;
/// Largest UDP payload that IPv4 can carry; IPv6 could carry 20 bytes more.
pub const PAYLOAD_BYTES_MAX: usize = 0xffff - ipv4::HEADER_BYTES_MIN - udp::HEADER_BYTES;

/// Addresses and ports of a UDP frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpMeta {
    /// MAC address of the sender, or of the last hop.
    pub src_mac: [u8; 6],
    /// MAC address of the receiver, or of the next hop.
    pub dst_mac: [u8; 6],
    /// Address of the sender.
    pub src_ip: IpAddr,
    /// Address of the receiver, of the same IP version.
    pub dst_ip: IpAddr,
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
}

impl UdpMeta {
    /// Swaps sender and receiver.
    pub fn reversed(&self) -> UdpMeta {
        UdpMeta {
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            src_ip: self.dst_ip,
            dst_ip: self.src_ip,
            src_port: self.dst_port,
            dst_port: self.src_port,
        }
    }
}

/// Headers of all frames of one flow and size, and the common part of their checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpTemplate {
    /// The first `headers_bytes` of them.
    headers: [u8; HEADERS_BYTES_MAX],
    headers_bytes: usize,
    /// Pseudo header and UDP header, checksum field zero.
    sum: u16,
    payload_bytes: usize,
}

/// Sum over the constant part of a payload: all bytes after the probe header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestSum(u16);

impl RestSum {
    /// Sums `payload` from [`probe::HEADER_BYTES`] on; 0 if it is shorter.
    pub fn of(payload: &[u8]) -> RestSum {
        RestSum(checksum::sum(payload.get(probe::HEADER_BYTES..).unwrap_or(&[])))
    }
}

impl UdpTemplate {
    /// Headers for datagrams of `payload_bytes` bytes, without fragmentation, TTL or hop limit 64. With IPv6
    /// the flow label is a hash of addresses and ports (RFC 6437), as the kernel's.
    ///
    /// Errors: the payload is larger than [`PAYLOAD_BYTES_MAX`], or the addresses are of two IP versions.
    pub fn new(meta: UdpMeta, payload_bytes: usize) -> Result<UdpTemplate, FrameError> {
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(FrameError::Length {
                field: "UDP payload",
                at: headers_bytes(meta.dst_ip),
                min_bytes: 0,
                max_bytes: PAYLOAD_BYTES_MAX,
                found_bytes: payload_bytes,
            });
        }
        let mut headers = [0; HEADERS_BYTES_MAX];
        let ethertype =
            if meta.dst_ip.is_ipv6() { ethernet::TYPE_IPV6 } else { ethernet::TYPE_IPV4 };
        ethernet::Repr { dst: meta.dst_mac, src: meta.src_mac, ethertype }.write(&mut headers)?;
        let udp = udp::Repr { src_port: meta.src_port, dst_port: meta.dst_port, payload_bytes };
        let pseudo = write_ip(&meta, udp, &mut headers[IP_OFFSET..])?;
        let headers_bytes = headers_bytes(meta.dst_ip);
        let udp_at = headers_bytes - udp::HEADER_BYTES;
        udp.write_header(&mut headers[udp_at..])?;
        // Behind the UDP header there are zeros.
        let sum = checksum::add(pseudo, checksum::sum(&headers[udp_at..]));
        Ok(UdpTemplate { headers, headers_bytes, sum, payload_bytes })
    }

    /// The same headers with a VLAN tag in place of any other.
    ///
    /// - `tag`: its 16 bits of priority and VLAN.
    #[must_use]
    pub fn tagged(mut self, tag: u16) -> UdpTemplate {
        let (at, to) = (ethernet::TYPE_OFFSET, ethernet::TYPE_OFFSET + ethernet::VLAN_BYTES);
        let ethertype = ethernet::TYPE_VLAN.to_be_bytes();
        if self.headers[at..at + 2] != ethertype {
            self.headers.copy_within(at..self.headers_bytes, to);
            self.headers_bytes += ethernet::VLAN_BYTES;
        }
        self.headers[at..at + 2].copy_from_slice(&ethertype);
        self.headers[at + 2..to].copy_from_slice(&tag.to_be_bytes());
        self
    }

    /// Bytes of the headers, and so the offset of the payload.
    pub fn headers_bytes(&self) -> usize {
        self.headers_bytes
    }

    /// Bytes of a frame: headers and payload.
    pub fn frame_bytes(&self) -> usize {
        self.headers_bytes() + self.payload_bytes
    }

    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Writes the headers to the first [`Self::headers_bytes`] of `frame`, with a valid IPv4 checksum
    /// and no UDP checksum (0). Errors: the buffer is too short.
    pub fn write_into(&self, frame: &mut [u8]) -> Result<(), FrameError> {
        let front = front_mut(frame, self.headers_bytes, HEADERS)?;
        // Copies of constant length take no call.
        match self.headers_bytes {
            HEADERS_BYTES => front.copy_from_slice(&self.headers[..HEADERS_BYTES]),
            HEADERS_V6_BYTES => front.copy_from_slice(&self.headers[..HEADERS_V6_BYTES]),
            bytes => front.copy_from_slice(&self.headers[..bytes]),
        }
        Ok(())
    }

    /// Fills in the UDP checksum from the whole payload.
    ///
    /// Errors: `frame` is shorter than [`Self::frame_bytes`]. Bytes after that are ignored.
    pub fn fill_checksum(&self, frame: &mut [u8]) -> Result<(), FrameError> {
        let frame = front_mut(frame, self.frame_bytes(), "headers and payload")?;
        let sum = checksum::add(self.sum, checksum::sum(&frame[self.headers_bytes()..]));
        put(frame, self.checksum_at(), checksum::finish_udp(sum))
    }

    /// Fills in the UDP checksum from the probe header in `frame` and the sum of the bytes after
    /// it. Same result as [`Self::fill_checksum`], but reads 24 bytes at any payload size.
    ///
    /// Errors: `frame` is shorter than headers and probe header (the rest of the payload may be in
    /// another buffer), or the template's payload is too small for a probe header.
    pub fn fill_checksum_from(&self, frame: &mut [u8], rest: RestSum) -> Result<(), FrameError> {
        let at = self.headers_bytes();
        let frame = front_mut(frame, at + probe::HEADER_BYTES, "headers and probe header")?;
        if self.payload_bytes < probe::HEADER_BYTES {
            return Err(probe_short(at, self.payload_bytes));
        }
        let sum = checksum::add(rest.0, checksum::sum(&frame[at..]));
        let checksum = checksum::finish_udp(checksum::add(self.sum, sum));
        put(frame, self.checksum_at(), checksum)
    }

    fn checksum_at(&self) -> usize {
        self.headers_bytes() - udp::HEADER_BYTES + udp::CHECKSUM_OFFSET
    }
}

/// Bytes of the Ethernet, IP and UDP header of frames to an address.
pub fn headers_bytes(ip: IpAddr) -> usize {
    if ip.is_ipv6() { HEADERS_V6_BYTES } else { HEADERS_BYTES }
}

/// Writes the IP header of a template; returns the sum of the pseudo header.
fn write_ip(meta: &UdpMeta, udp: udp::Repr, bytes: &mut [u8]) -> Result<u16, FrameError> {
    let protocol = ipv4::PROTOCOL_UDP;
    let payload_bytes = udp::HEADER_BYTES + udp.payload_bytes;
    match (meta.src_ip, meta.dst_ip) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            ipv4::Repr { src, dst, protocol, ttl: ipv4::TTL, payload_bytes }.write(bytes)?;
            Ok(checksum::pseudo_header_sum(src, dst, protocol, udp.len_field()))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ports = (meta.src_port, meta.dst_port);
            let flow_label = Tuple::V6 { src, dst, protocol, ports }.crc32c();
            let (next, hops, service) = (protocol, ipv4::TTL, 0);
            ipv6::Repr { src, dst, next, hops, service, flow_label, payload_bytes }.write(bytes)?;
            Ok(ipv6::pseudo_header_sum(src, dst, protocol, udp.len_field().into()))
        }
        (src, _) => Err(FrameError::Other {
            field: "IP version",
            at: IP_OFFSET,
            expected: if src.is_ipv6() { 6 } else { 4 },
            found: if src.is_ipv6() { 4 } else { 6 },
        }),
    }
}

const HEADERS: &str = "the Ethernet, IP and UDP header";

/// Offsets of the parts of a checked UDP frame.
struct Parts {
    ip_at: usize,
    is_v6: bool,
    udp_at: usize,
    payload: Range<usize>,
}

/// Checks a frame of `frame_bytes` bytes that starts with `head`. The headers must be in `head`,
/// the payload may exceed it.
fn locate(head: &[u8], frame_bytes: usize) -> Result<Parts, FrameError> {
    let (ip_at, is_v6) = ethernet::ip_offset(head)?;
    let packet_bytes = frame_bytes.saturating_sub(ip_at);
    let found = if is_v6 {
        upper_of_v6(&head[ip_at..], packet_bytes)
    } else {
        upper_of_v4(&head[ip_at..], packet_bytes)
    };
    let (header_bytes, datagram_bytes) = found.map_err(|error| error.shifted(ip_at))?;
    let udp_at = ip_at + header_bytes;
    let udp = udp::Header::parse(&head[udp_at..], datagram_bytes)
        .map_err(|error| error.shifted(udp_at))?;
    if is_v6 && udp.checksum() == 0 {
        return Err(FrameError::NoChecksum { at: udp_at + udp::CHECKSUM_OFFSET });
    }
    let start = udp_at + udp::HEADER_BYTES;
    Ok(Parts { ip_at, is_v6, udp_at, payload: start..start + udp.payload_bytes() })
}

/// Header and payload length of a whole UDP packet over IPv4.
fn upper_of_v4(packet: &[u8], packet_bytes: usize) -> Result<(usize, usize), FrameError> {
    let ip = ipv4::Header::parse(packet, packet_bytes)?;
    ip.expect_whole(ipv4::PROTOCOL_UDP)?;
    Ok((ip.header_bytes(), ip.payload_bytes()))
}

/// As [`upper_of_v4`], for IPv6.
fn upper_of_v6(packet: &[u8], packet_bytes: usize) -> Result<(usize, usize), FrameError> {
    let ip = ipv6::Header::parse(packet, packet_bytes)?;
    ip.expect_next(ipv4::PROTOCOL_UDP)?;
    Ok((ipv6::HEADER_BYTES, ip.payload_bytes()))
}

fn meta(head: &[u8], parts: &Parts) -> UdpMeta {
    let (src_ip, dst_ip) = if parts.is_v6 {
        let (src, dst) = v6_addresses(head, parts);
        (src.into(), dst.into())
    } else {
        let (src, dst) = v4_addresses(head, parts);
        (src.into(), dst.into())
    };
    UdpMeta {
        src_mac: array(head, ethernet::SRC_OFFSET),
        dst_mac: array(head, ethernet::DST_OFFSET),
        src_ip,
        dst_ip,
        src_port: u16::from_be_bytes(array(head, parts.udp_at + udp::SRC_PORT_OFFSET)),
        dst_port: u16::from_be_bytes(array(head, parts.udp_at + udp::DST_PORT_OFFSET)),
    }
}

/// Checks a frame and returns its addresses and the range of its UDP payload.
///
/// Checked: EtherType (one VLAN tag may precede it), IP version, header length, total length
/// against the frame, an unfragmented UDP datagram, UDP length. Not checked: checksums, see
/// [`verify_checksums`]. Padding after the datagram is not part of the payload.
pub fn udp_payload(frame: &[u8]) -> Result<(UdpMeta, Range<usize>), FrameError> {
    let parts = locate(frame, frame.len())?;
    Ok((meta(frame, &parts), parts.payload))
}

/// Swaps the MAC addresses, IP addresses and ports of a UDP frame in place.
///
/// Both checksums stay valid, because a sum does not depend on the order of its words; VLAN
/// tag, TTL, flow label and payload are unchanged. Returns the range of the payload. On an error the frame is
/// unchanged.
pub fn swap_for_echo(frame: &mut [u8]) -> Result<Range<usize>, FrameError> {
    let parts = locate(frame, frame.len())?;
    swap_located(frame, &parts);
    Ok(parts.payload)
}

fn swap_located(frame: &mut [u8], parts: &Parts) {
    swap::<6>(frame, ethernet::SRC_OFFSET, ethernet::DST_OFFSET);
    if parts.is_v6 {
        swap::<16>(frame, parts.ip_at + ipv6::SRC_OFFSET, parts.ip_at + ipv6::DST_OFFSET);
    } else {
        swap::<4>(frame, parts.ip_at + ipv4::SRC_OFFSET, parts.ip_at + ipv4::DST_OFFSET);
    }
    swap::<2>(frame, parts.udp_at + udp::SRC_PORT_OFFSET, parts.udp_at + udp::DST_PORT_OFFSET);
}

/// A UDP frame, or the start of one, with checked headers, that can be answered in place.
pub struct Received<'a> {
    head: &'a mut [u8],
    parts: Parts,
}

impl<'a> Received<'a> {
    /// Checks a frame as [`udp_payload`] does.
    ///
    /// - `head`: the first bytes of a frame of `frame_bytes`, which is spread over several buffers or was
    ///   truncated by a capture length; the headers must be among them.
    pub fn parse(head: &'a mut [u8], frame_bytes: usize) -> Result<Received<'a>, FrameError> {
        let parts = locate(head, frame_bytes)?;
        Ok(Received { head, parts })
    }

    /// The part of the payload that is in the head.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = self.parts.payload.end.min(self.head.len());
        &mut self.head[self.parts.payload.start..end]
    }

    /// Length of the whole payload.
    pub fn payload_bytes(&self) -> usize {
        self.parts.payload.len()
    }

    /// Turns a ping into its reply: sets kind and reply of the probe header, updates the UDP checksum
    /// incrementally (RFC 1624), and swaps addresses and ports as [`swap_for_echo`] does.
    ///
    /// A datagram without checksum keeps none. A datagram from a socket of this host may carry the
    /// sum of its pseudo header only (checksum offload that no device has completed); its checksum
    /// is completed here from the whole payload, because no later stage does. If the payload exceeds the
    /// head, it becomes none with IPv4; with IPv6, which requires one, that of zeros behind the head, as
    /// the probe's engines send them.
    ///
    /// Errors: no probe header; the frame is unchanged.
    pub fn answer_probe(mut self, kind: probe::Kind, reply: u32) -> Result<(), FrameError> {
        let at = self.parts.payload.start;
        probe::Header::parse(self.payload_mut())
            .map_err(|source| FrameError::Probe { at, source })?;
        let Received { head, parts } = self;
        let checksum_at = parts.udp_at + udp::CHECKSUM_OFFSET;
        let found = u16::from_be_bytes(array(head, checksum_at));
        let unfinished = found == pseudo_header_sum(head, &parts);

        let kind_at = at + probe::KIND_OFFSET;
        let reply_at = at + probe::REPLY_OFFSET;
        let before = rewritten_sum(head, kind_at, reply_at);
        head[kind_at] = kind as u8;
        head[reply_at..reply_at + 4].copy_from_slice(&reply.to_be_bytes());
        let is_cut = parts.payload.end > head.len();
        let checksum = if !unfinished || found == 0 {
            checksum::update_udp(found, before, rewritten_sum(head, kind_at, reply_at))
        } else if is_cut && !parts.is_v6 {
            0
        } else {
            full_udp_checksum(head, &parts)
        };
        put(head, checksum_at, checksum)?;
        swap_located(head, &parts);
        Ok(())
    }
}

/// Sum of the words that [`Received::answer_probe`] writes to.
fn rewritten_sum(frame: &[u8], kind_at: usize, reply_at: usize) -> u16 {
    [kind_at, reply_at, reply_at + 2]
        .map(|at| u16::from_be_bytes(array(frame, at)))
        .into_iter()
        .fold(0, checksum::add)
}

/// State of the UDP checksum of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UdpChecksum {
    /// Present and correct.
    Valid,
    /// The sender set none.
    Absent,
    /// Sum of the pseudo header only: sent by a socket of this host with checksum offload that no
    /// device has completed.
    Unfinished,
}

/// Checks the IPv4 header's checksum, if there is one, and the datagram's.
///
/// Errors: those of [`udp_payload`], and [`FrameError::Checksum`].
pub fn verify_checksums(frame: &[u8]) -> Result<UdpChecksum, FrameError> {
    let parts = locate(frame, frame.len())?;
    if !parts.is_v6 {
        ipv4::verify_header_checksum(&frame[parts.ip_at..parts.udp_at])
            .map_err(|error| error.shifted(parts.ip_at))?;
    }
    let at = parts.udp_at + udp::CHECKSUM_OFFSET;
    let found = u16::from_be_bytes(array(frame, at));
    if found == 0 {
        return Ok(UdpChecksum::Absent);
    }
    let expected = full_udp_checksum(frame, &parts);
    if found == expected {
        Ok(UdpChecksum::Valid)
    } else if found == pseudo_header_sum(frame, &parts) {
        Ok(UdpChecksum::Unfinished)
    } else {
        Err(FrameError::Checksum { field: "UDP checksum", at, expected, found })
    }
}

/// Checksum of the datagram, independent of its checksum field; of zeros behind the end of `frame`.
fn full_udp_checksum(frame: &[u8], parts: &Parts) -> u16 {
    let checksum_at = parts.udp_at + udp::CHECKSUM_OFFSET;
    let sum = checksum::add(
        checksum::sum(&frame[parts.udp_at..checksum_at]),
        checksum::sum(&frame[parts.payload.start..parts.payload.end.min(frame.len())]),
    );
    checksum::finish_udp(checksum::add(pseudo_header_sum(frame, parts), sum))
}

fn pseudo_header_sum(frame: &[u8], parts: &Parts) -> u16 {
    let len_bytes = u16::from_be_bytes(array(frame, parts.udp_at + udp::LEN_OFFSET));
    if parts.is_v6 {
        let (src, dst) = v6_addresses(frame, parts);
        return ipv6::pseudo_header_sum(src, dst, ipv4::PROTOCOL_UDP, len_bytes.into());
    }
    let (src, dst) = v4_addresses(frame, parts);
    checksum::pseudo_header_sum(src, dst, ipv4::PROTOCOL_UDP, len_bytes)
}

fn v4_addresses(frame: &[u8], parts: &Parts) -> (Ipv4Addr, Ipv4Addr) {
    let address = |offset| Ipv4Addr::from(array::<4>(frame, parts.ip_at + offset));
    (address(ipv4::SRC_OFFSET), address(ipv4::DST_OFFSET))
}

fn v6_addresses(frame: &[u8], parts: &Parts) -> (Ipv6Addr, Ipv6Addr) {
    let address = |offset| Ipv6Addr::from(array::<16>(frame, parts.ip_at + offset));
    (address(ipv6::SRC_OFFSET), address(ipv6::DST_OFFSET))
}

/// The `N` bytes at `at`, which the caller has checked; zeros if out of range.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

fn put(frame: &mut [u8], at: usize, word: u16) -> Result<(), FrameError> {
    front(frame, at + 2, HEADERS)?;
    frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
    Ok(())
}

/// Swaps the `N` bytes at `a` and `b`, both within the frame.
fn swap<const N: usize>(frame: &mut [u8], a: usize, b: usize) {
    let (at_a, at_b): ([u8; N], [u8; N]) = (array(frame, a), array(frame, b));
    frame[a..a + N].copy_from_slice(&at_b);
    frame[b..b + N].copy_from_slice(&at_a);
}

fn probe_short(at: usize, had_bytes: usize) -> FrameError {
    FrameError::Probe { at, source: ProbeError::Short { had_bytes } }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::probe::{Header, Kind};

    const META: UdpMeta = UdpMeta {
        src_mac: [2, 0, 0, 0, 0, 1],
        dst_mac: [2, 0, 0, 0, 0, 2],
        src_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        dst_ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        src_port: 8080,
        dst_port: 53,
    };
    const PING: Header = Header {
        kind: Kind::Ping,
        flow: 3,
        session: 0x1234_5678,
        sequence: 9,
        reply: 0,
        time_ns: 123_456_789_012,
    };

    /// 10.0.0.1:8080 to 10.0.0.2:53, "hello"; both checksums computed by another program.
    #[rustfmt::skip]
    const HELLO: [u8; 47] = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,
        0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0x26, 0xca, 10, 0, 0, 1, 10, 0, 0, 2,
        0x1f, 0x90, 0x00, 0x35, 0, 13, 0x88, 0x3a,
        b'h', b'e', b'l', b'l', b'o',
    ];

    const META_V6: UdpMeta = UdpMeta {
        src_ip: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        dst_ip: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
        ..META
    };

    /// [fd00::1]:8080 to [fd00::2]:53, "hello"; UDP checksum computed by another program.
    #[rustfmt::skip]
    const HELLO_V6: [u8; 67] = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd,
        0x60, 0, 0, 0, 0, 13, 17, 64,
        0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
        0x1f, 0x90, 0x00, 0x35, 0, 13, 0xa2, 0x38,
        b'h', b'e', b'l', b'l', b'o',
    ];

    /// A ping with its checksum.
    fn ping(payload_bytes: usize) -> Vec<u8> {
        ping_of(META, payload_bytes)
    }

    fn ping_of(meta: UdpMeta, payload_bytes: usize) -> Vec<u8> {
        let template = UdpTemplate::new(meta, payload_bytes).expect("it is small enough");
        let mut frame = vec![0xa5; template.frame_bytes()];
        template.write_into(&mut frame).expect("it fits");
        PING.write(&mut frame[template.headers_bytes()..]).expect("it fits");
        template.fill_checksum(&mut frame).expect("it fits");
        frame
    }

    /// The same frame with a VLAN tag.
    fn tagged(frame: &[u8]) -> Vec<u8> {
        [&frame[..12], &[0x81, 0x00, 0x20, 0x07], &frame[12..]].concat()
    }

    fn answer(frame: &mut [u8], kind: Kind, reply: u32) -> Result<(), FrameError> {
        let frame_bytes = frame.len();
        Received::parse(frame, frame_bytes)?.answer_probe(kind, reply)
    }

    fn checksum_of(frame: &[u8]) -> u16 {
        u16::from_be_bytes(array(frame, checksum_at(frame)))
    }

    fn checksum_at(frame: &[u8]) -> usize {
        locate(frame, frame.len()).expect("it is a UDP frame").udp_at + udp::CHECKSUM_OFFSET
    }

    #[test]
    fn known_frame_is_built_byte_for_byte() {
        let template = UdpTemplate::new(META, 5).expect("it is small enough");
        let mut frame = [0; 47];
        frame[HEADERS_BYTES..].copy_from_slice(b"hello");
        template.write_into(&mut frame).expect("it fits");
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Absent));
        template.fill_checksum(&mut frame).expect("it fits");
        assert_eq!(frame, HELLO);
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
    }

    #[test]
    fn a_tagged_template_writes_the_same_frame_with_the_tag_in_place() {
        for meta in [META, META_V6] {
            let (plain, tag) = (ping_of(meta, 64), 0x2007);
            let template = UdpTemplate::new(meta, 64).expect("it is small enough").tagged(tag);
            let mut frame = vec![0xa5; template.frame_bytes()];
            template.write_into(&mut frame).expect("it fits");
            PING.write(&mut frame[template.headers_bytes()..]).expect("it fits");
            template
                .fill_checksum_from(&mut frame, RestSum::of(&plain[plain.len() - 64..]))
                .expect("it fits");
            assert_eq!(frame, tagged(&plain));
            assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
            assert_eq!(template.tagged(9).tagged(tag), template, "one tag");
        }
    }

    #[test]
    fn known_frame_is_read() {
        assert_eq!(udp_payload(&HELLO), Ok((META, 42..47)));
    }

    #[test]
    fn frame_over_ipv6_is_built_and_read_byte_for_byte() {
        let template = UdpTemplate::new(META_V6, 5).expect("it is small enough");
        let mut frame = [0; 67];
        template.write_into(&mut frame).expect("it fits");
        frame[template.headers_bytes()..].copy_from_slice(b"hello");
        template.fill_checksum(&mut frame).expect("it fits");
        // The flow label is a hash.
        assert!(frame[15] & 0xf0 == 0 && frame[15..18] != [0; 3]);
        frame[15..18].fill(0);
        assert_eq!(frame, HELLO_V6);
        assert_eq!(udp_payload(&frame), Ok((META_V6, 62..67)));
        assert_eq!(udp_payload(&tagged(&frame)), Ok((META_V6, 66..71)));
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
        for len in 0..frame.len() {
            assert!(udp_payload(&frame[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn flows_over_ipv6_have_labels_of_their_own_and_a_flow_keeps_its() {
        let label = |src_port| {
            let template = UdpTemplate::new(UdpMeta { src_port, ..META_V6 }, 64).expect("small");
            [template.headers[15], template.headers[16], template.headers[17]]
        };
        assert_eq!(label(9001), label(9001));
        assert_ne!(label(9001), label(9002));
        assert_eq!(UdpTemplate::new(META, 64).expect("small").headers[42..], [0; 24]);
    }

    fn broken(at: usize, byte: u8) -> FrameError {
        let mut frame = HELLO_V6;
        frame[at] = byte;
        udp_payload(&frame).expect_err("it is broken")
    }

    #[test]
    fn ipv6_without_a_checksum_with_an_extension_or_mixed_with_ipv4_is_refused() {
        let other = |field, at, expected, found| FrameError::Other { field, at, expected, found };
        assert_eq!(broken(14, 0x45), other("IP version", 14, 6, 4));
        assert_eq!(broken(20, 44), other("IPv6 next header", 20, 17, 44));
        assert_eq!(broken(20, 0), other("IPv6 next header", 20, 17, 0));
        let mut none = HELLO_V6;
        none[60..62].fill(0);
        assert_eq!(udp_payload(&none), Err(FrameError::NoChecksum { at: 60 }));
        let mixed = UdpMeta { src_ip: META.src_ip, ..META_V6 };
        assert_eq!(UdpTemplate::new(mixed, 64), Err(other("IP version", 14, 4, 6)));
    }

    #[test]
    fn answer_to_the_head_of_a_long_frame_has_the_checksum_of_the_whole() {
        for meta in [META, META_V6] {
            let template = UdpTemplate::new(meta, 3000).expect("it is small enough");
            let mut whole = vec![0; template.frame_bytes()];
            template.write_into(&mut whole).expect("it fits");
            PING.write(&mut whole[template.headers_bytes()..]).expect("it fits");
            template.fill_checksum(&mut whole).expect("it fits");
            let at = checksum_at(&whole);
            let parts = locate(&whole, whole.len()).expect("it is a UDP frame");
            let pseudo = pseudo_header_sum(&whole, &parts);
            let answered = |checksum: u16| {
                let mut frame = whole.clone();
                put(&mut frame, at, checksum).expect("it fits");
                let frame_bytes = frame.len();
                let (head, _) = frame.split_at_mut(1537);
                let received = Received::parse(head, frame_bytes).expect("it is a UDP frame");
                received.answer_probe(Kind::Pong, 7).expect("it is a ping");
                (udp_payload(&frame).map(|(meta, _)| meta), verify_checksums(&frame))
            };
            let reversed = Ok(meta.reversed());
            assert_eq!(answered(checksum_of(&whole)), (reversed, Ok(UdpChecksum::Valid)));
            let unfinished = if meta == META { UdpChecksum::Absent } else { UdpChecksum::Valid };
            assert_eq!(answered(pseudo), (reversed, Ok(unfinished)));
        }
    }

    #[test]
    fn padding_is_no_payload() {
        let mut frame = HELLO.to_vec();
        frame.resize(60, 0xee);
        assert_eq!(udp_payload(&frame), Ok((META, 42..47)));
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
    }

    #[test]
    fn vlan_tag_moves_everything_by_four() {
        let mut frame = tagged(&HELLO);
        assert_eq!(udp_payload(&frame), Ok((META, 46..51)));
        assert_eq!(swap_for_echo(&mut frame), Ok(46..51));
        assert_eq!(frame[12..18], [0x81, 0x00, 0x20, 0x07, 0x08, 0x00]);
        assert_eq!(udp_payload(&frame), Ok((META.reversed(), 46..51)));
    }

    #[test]
    fn options_are_skipped() {
        let mut frame = [&HELLO[..34], &[1, 1, 1, 0], &HELLO[34..]].concat();
        frame[14] = 0x46;
        frame[17] = 37;
        assert_eq!(udp_payload(&frame), Ok((META, 46..51)));
    }

    #[test]
    fn payload_may_exceed_the_head() {
        let mut frame = HELLO;
        let mut received = Received::parse(&mut frame[..44], 47).expect("the headers are there");
        assert_eq!((received.payload_bytes(), &received.payload_mut()[..]), (5, &b"he"[..]));
        assert_eq!(Received::parse(&mut frame[..42], 47).map(|r| r.payload_bytes()), Ok(5));
        assert!(Received::parse(&mut frame[..41], 47).is_err());
        assert!(Received::parse(&mut frame[..42], 46).is_err());
    }

    #[test]
    fn each_cut_of_a_frame_is_an_error() {
        for len in 0..HELLO.len() {
            assert!(udp_payload(&HELLO[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn faults_are_named_with_their_offset() {
        let broken = |at: usize, byte: u8| {
            let mut frame = HELLO;
            frame[at] = byte;
            udp_payload(&frame).expect_err("it is broken")
        };
        let other = |field, at, expected, found| FrameError::Other { field, at, expected, found };
        assert_eq!(broken(13, 0x06), other("EtherType", 12, 0x0800, 0x0806));
        assert_eq!(broken(14, 0x65), other("IP version", 14, 4, 6));
        assert_eq!(broken(23, 6), other("IP protocol", 23, 17, 6));
        assert_eq!(broken(20, 0x20), FrameError::Fragment { at: 20, found: 0x2000 });
        assert_eq!(broken(21, 1), FrameError::Fragment { at: 20, found: 0x4001 });
        let length = |field, at, min_bytes, max_bytes, found_bytes| FrameError::Length {
            field,
            at,
            min_bytes,
            max_bytes,
            found_bytes,
        };
        assert_eq!(broken(14, 0x44), length("IPv4 header length", 14, 20, 60, 16));
        assert_eq!(broken(17, 34), length("IPv4 total length", 16, 20, 33, 34));
        assert_eq!(broken(17, 19), length("IPv4 total length", 16, 20, 33, 19));
        assert_eq!(broken(39, 14), length("UDP length", 38, 8, 13, 14));
        assert_eq!(broken(39, 7), length("UDP length", 38, 8, 13, 7));
    }

    #[test]
    fn wrong_checksums_are_named_with_the_right_one() {
        let wrong =
            |field, at, expected, found| Err(FrameError::Checksum { field, at, expected, found });
        let mut frame = HELLO;
        frame[24] ^= 0xff;
        let found = 0xd9ca;
        assert_eq!(verify_checksums(&frame), wrong("IPv4 header checksum", 24, 0x26ca, found));
        let mut frame = HELLO;
        frame[41] ^= 1;
        assert_eq!(verify_checksums(&frame), wrong("UDP checksum", 40, 0x883a, 0x883b));
    }

    #[test]
    fn udp_checksum_that_comes_to_zero_is_sent_as_all_ones() {
        let template = UdpTemplate::new(META, 2).expect("it is small enough");
        let mut frame = [0; 44];
        template.write_into(&mut frame).expect("it fits");
        frame[HEADERS_BYTES..].copy_from_slice(&[0xcc, 0x12]); // found by trying all
        template.fill_checksum(&mut frame).expect("it fits");
        assert_eq!(checksum_of(&frame), 0xffff);
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
    }

    #[test]
    fn rewriting_to_a_checksum_of_zero_sends_all_ones() {
        // Find a reply for which the sum is zero, by trying every low half.
        let answered = (0..=0xffff).find_map(|reply| {
            let mut frame = ping(24);
            answer(&mut frame, Kind::Pong, reply).expect("it is a probe's");
            (checksum_of(&frame) == 0xffff).then_some(frame)
        });
        let mut frame = answered.expect("one of them has it");
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
        answer(&mut frame, Kind::Ping, 0).expect("it is a probe's");
        assert_eq!(frame, ping(24));
    }

    #[test]
    fn echo_turns_a_ping_into_a_valid_pong() {
        for payload_bytes in [24, 25, 64, 1459, 1460] {
            let (v4, v6) = (ping(payload_bytes), ping_of(META_V6, payload_bytes));
            for mut frame in [tagged(&v4), tagged(&v6), v4, v6] {
                let (meta, payload) = udp_payload(&frame).expect("it is a UDP frame");
                answer(&mut frame, Kind::Pong, 0xfffe_fffd).expect("it is a probe's");
                assert_eq!(udp_payload(&frame), Ok((meta.reversed(), payload.clone())));
                assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
                let pong = Header { kind: Kind::Pong, reply: 0xfffe_fffd, ..PING };
                assert_eq!(Header::parse(&frame[payload]), Ok(pong));
            }
        }
    }

    #[test]
    fn rewriting_leaves_no_checksum_as_none() {
        let mut frame = ping(64);
        put(&mut frame, 40, 0).expect("it fits");
        answer(&mut frame, Kind::Pong, 7).expect("it is a probe's");
        assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Absent));
    }

    #[test]
    fn rewriting_completes_an_offloaded_checksum() {
        for mut frame in [ping(64), ping_of(META_V6, 64)] {
            let parts = locate(&frame, frame.len()).expect("it is a UDP frame");
            let unfinished = pseudo_header_sum(&frame, &parts);
            let at = checksum_at(&frame);
            put(&mut frame, at, unfinished).expect("it fits");
            assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Unfinished));
            answer(&mut frame, Kind::Pong, 7).expect("it is a probe's");
            assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
        }
    }

    #[test]
    fn rewriting_another_payload_fails_and_changes_nothing() {
        let mut frame = HELLO;
        assert_eq!(
            answer(&mut frame, Kind::Pong, 7),
            Err(FrameError::Probe { at: 42, source: ProbeError::Short { had_bytes: 5 } })
        );
        assert_eq!(frame, HELLO);
    }

    #[test]
    fn template_refuses_a_short_buffer_and_a_large_payload() {
        assert!(UdpTemplate::new(META, PAYLOAD_BYTES_MAX).is_ok());
        assert!(UdpTemplate::new(META, PAYLOAD_BYTES_MAX + 1).is_err());
        assert!(UdpTemplate::new(META, usize::MAX).is_err());
        let template = UdpTemplate::new(META, 23).expect("it is small enough");
        assert!(template.write_into(&mut [0; 41]).is_err());
        assert!(template.fill_checksum(&mut [0; 64]).is_err());
        assert_eq!(
            template.fill_checksum_from(&mut [0; 66], RestSum::of(&[])),
            Err(FrameError::Probe { at: 42, source: ProbeError::Short { had_bytes: 23 } })
        );
        let template = UdpTemplate::new(META, 100).expect("it is small enough");
        assert!(template.fill_checksum_from(&mut [0; 65], RestSum::of(&[])).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn checksum_from_the_rest_is_the_full_one(
            payload in prop::collection::vec(
                prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 24..200,
            ),
            macs: ([u8; 6], [u8; 6]), ips: ([u8; 16], [u8; 16]), is_v6: bool, src_port: u16,
            dst_port: u16,
        ) {
            let ip = |ip: [u8; 16]| {
                if is_v6 { IpAddr::from(ip) } else { IpAddr::from([ip[0], ip[1], ip[2], ip[3]]) }
            };
            let meta = UdpMeta {
                src_mac: macs.0,
                dst_mac: macs.1,
                src_ip: ip(ips.0),
                dst_ip: ip(ips.1),
                src_port,
                dst_port,
            };
            let template = UdpTemplate::new(meta, payload.len()).expect("it is small enough");
            let mut full = vec![0; template.frame_bytes()];
            template.write_into(&mut full).expect("it fits");
            full[template.headers_bytes()..].copy_from_slice(&payload);
            let mut incremental = full.clone();
            template.fill_checksum(&mut full).expect("it fits");
            template
                .fill_checksum_from(&mut incremental, RestSum::of(&payload))
                .expect("it fits");
            prop_assert_eq!(&full, &incremental);
            prop_assert_eq!(verify_checksums(&full), Ok(UdpChecksum::Valid));
            prop_assert_eq!(udp_payload(&full), Ok((meta, template.headers_bytes()..full.len())));
        }

        #[test]
        fn rewritten_checksum_is_the_full_one(
            payload_bytes in 24usize..120, is_v6: bool, kind in 1u8..=4, reply: u32, again: u32,
        ) {
            let kind = Kind::from_wire(kind).expect("1 to 4 are known");
            let mut frame = ping_of(if is_v6 { META_V6 } else { META }, payload_bytes);
            for reply in [reply, again] {
                answer(&mut frame, kind, reply).expect("it is a probe's");
                prop_assert_eq!(verify_checksums(&frame), Ok(UdpChecksum::Valid));
            }
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..128)) {
            crate::fuzzing::frame(&bytes);
        }

        /// As above, with enough of a frame to pass the first checks.
        #[test]
        fn bent_frames_never_panic(
            payload_bytes in 24usize..80,
            is_v6: bool,
            tag: bool,
            cut in 0usize..8,
            bends in prop::collection::vec((0usize..90, any::<u8>()), 0..4),
        ) {
            let mut frame = ping_of(if is_v6 { META_V6 } else { META }, payload_bytes);
            if tag {
                frame = tagged(&frame);
            }
            frame.truncate(frame.len() - cut / 2);
            for (at, byte) in bends {
                if let Some(bent) = frame.get_mut(at) {
                    *bent = byte;
                }
            }
            crate::fuzzing::frame(&frame);
        }
    }
}
