//! Segments of a frame: their number and sizes, and a part of a super-frame as a frame of its own.

use std::ops::Range;

use sys::packet_port::{PortHeader, SegmentKind};

/// Bytes that a frame has on an Ethernet wire beside its own: checksum, preamble and gap.
///
/// Source: IEEE 802.3: 4, 7 + 1 and 12 bytes.
const OVERHEAD_BYTES: usize = 24;
/// Smallest frame on the wire: 64 bytes with the checksum, preamble and gap.
const WIRE_BYTES_MIN: usize = 84;
/// Most headers of a super-frame that is cut.
const HEADERS_MAX: usize = 256;

const ETHERNET_BYTES: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];
const TAGS_MAX: usize = 2;
const EXTENSIONS_MAX: usize = 8;
const IPV6_BYTES: usize = 40;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// Types of ICMPv6 of neighbours, routers and groups, which the kernel sends by itself.
const ICMPV6_OWN: Range<u8> = 130..144;

const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Internet {
    at: usize,
    is_v6: bool,
    /// Headers of IP alone.
    bytes: usize,
    protocol: u8,
    /// Behind the IP headers, as the packet says.
    payload_bytes: usize,
    /// Its sender understands marks of congestion.
    is_ect: bool,
}

/// Segments that a frame stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    frame_bytes: usize,
    ip: Option<Internet>,
    /// All headers of a super-frame that can be cut; else the frame's bytes.
    header_bytes: usize,
    /// Payload of each segment but the last.
    segment_bytes: usize,
    pub(super) segment_count: u32,
    /// Segments that losses are counted by: TCP with payload, and what is neither TCP nor the kernel's own.
    pub(super) is_data: bool,
    /// It is a super-frame that is lost or delivered as a whole.
    pub(super) is_uncut: bool,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn internet(frame: &[u8]) -> Option<Internet> {
    let mut at = ETHERNET_BYTES;
    for _ in 0..TAGS_MAX {
        if TAGS.contains(&word(frame, at - 2)?) {
            at += 4;
        }
    }
    match word(frame, at - 2)? {
        ETHERTYPE_IPV4 => {
            let bytes = usize::from(frame.get(at)? & 0xf) * 4;
            let all_bytes = usize::from(word(frame, at + 2)?);
            Some(Internet {
                at,
                is_v6: false,
                bytes,
                protocol: *frame.get(at + 9)?,
                payload_bytes: all_bytes.checked_sub(bytes).filter(|_| bytes >= 20)?,
                is_ect: matches!(frame.get(at + 1)? & 3, 1 | 2),
            })
        }
        ETHERTYPE_IPV6 => {
            let mut protocol = *frame.get(at + 6)?;
            let mut bytes = IPV6_BYTES;
            for _ in 0..EXTENSIONS_MAX {
                // Hop-by-hop options, routing header and destination options. Source: RFC 8200 section 4.
                if ![0, 43, 60].contains(&protocol) {
                    break;
                }
                protocol = *frame.get(at + bytes)?;
                bytes += (usize::from(*frame.get(at + bytes + 1)?) + 1) * 8;
            }
            let all_bytes = usize::from(word(frame, at + 4)?) + IPV6_BYTES;
            Some(Internet {
                at,
                is_v6: true,
                bytes,
                protocol,
                payload_bytes: all_bytes.checked_sub(bytes)?,
                is_ect: matches!(frame.get(at + 1)? >> 4 & 3, 1 | 2),
            })
        }
        _ => None,
    }
}

impl Shape {
    /// - `frame`: from its destination address on.
    pub(super) fn of(frame: &[u8], header: &PortHeader) -> Shape {
        let ip = internet(frame);
        let whole = Shape {
            frame_bytes: frame.len(),
            ip,
            header_bytes: frame.len(),
            segment_bytes: 0,
            segment_count: 1,
            is_data: ip.is_some_and(|ip| is_data(frame, &ip)),
            is_uncut: false,
        };
        let Some((kind, segment_bytes)) = header.segments else { return whole };
        let segment_bytes = usize::from(segment_bytes);
        let uncut = Shape { is_uncut: true, ..whole };
        let Some(ip) = ip.filter(|_| segment_bytes > 0 && header.checksum.is_some()) else {
            return uncut;
        };
        let transport_at = ip.at + ip.bytes;
        let transport_bytes = match (kind, ip.protocol, ip.is_v6) {
            (SegmentKind::Tcp4, TCP, false) | (SegmentKind::Tcp6, TCP, true) => {
                frame.get(transport_at + 12).map(|byte| usize::from(byte >> 4) * 4)
            }
            (SegmentKind::Udp, UDP, _) => Some(8),
            _ => None,
        };
        let Some(header_bytes) = transport_bytes.map(|bytes| transport_at + bytes) else {
            return uncut;
        };
        if header_bytes > HEADERS_MAX || header_bytes >= frame.len() {
            return uncut;
        }
        let segment_count = (frame.len() - header_bytes).div_ceil(segment_bytes) as u32;
        Shape { header_bytes, segment_bytes, segment_count, is_data: true, ..whole }
    }

    /// Bytes of the payload of some segments in the frame.
    fn payload(&self, segments: &Range<u32>) -> Range<usize> {
        let begin = |segment: u32| {
            (self.header_bytes + segment as usize * self.segment_bytes).min(self.frame_bytes)
        };
        begin(segments.start)..begin(segments.end)
    }

    /// Bytes of a segment on the wire.
    pub(super) fn wire_bytes(&self, segment: u32) -> u64 {
        let bytes = match self.segment_count {
            1 => self.frame_bytes,
            _ => self.header_bytes + self.payload(&(segment..segment + 1)).len(),
        };
        (bytes + OVERHEAD_BYTES).max(WIRE_BYTES_MIN) as u64
    }

    /// True if a segment can be marked in place of a drop.
    pub(super) fn is_ect(&self) -> bool {
        self.ip.is_some_and(|ip| ip.is_ect)
    }

    /// Marks a whole frame: its path is congested.
    pub(super) fn mark(&self, frame: &mut [u8]) {
        if let Some(ip) = &self.ip {
            mark(frame, ip);
        }
    }

    /// Some segments of a super-frame as a frame of their own: its headers, behind a [`PortHeader`], in `room`.
    /// Returns their length and the place of the payload in the frame.
    pub(super) fn cut(
        &self,
        frame: &[u8],
        header: &PortHeader,
        segments: &Range<u32>,
        is_marked: bool,
        room: &mut CutHeaders,
    ) -> Option<(usize, Range<usize>)> {
        let ip = self.ip?;
        let payload = self.payload(segments);
        let own = frame.get(..self.header_bytes)?;
        let of_port = PortHeader {
            checksum: header.checksum,
            segments: header.segments.filter(|_| segments.len() > 1),
            // The kernel's own hint may count payload that this part does not have.
            header_bytes: self.header_bytes as u16,
            ..*header
        };
        room.get_mut(..PortHeader::BYTES)?.copy_from_slice(&of_port.write());
        let headers = room.get_mut(PortHeader::BYTES..PortHeader::BYTES + self.header_bytes)?;
        headers.copy_from_slice(own);

        let skipped_bytes = segments.start as usize * self.segment_bytes;
        let ip_payload_bytes = self.header_bytes - ip.at - ip.bytes + payload.len();
        let transport = ip.at + ip.bytes;
        if ip.is_v6 {
            let bytes = (ip.bytes - IPV6_BYTES + ip_payload_bytes) as u16;
            put(headers, ip.at + 4, bytes)?;
        } else {
            put(headers, ip.at + 2, (ip.bytes + ip_payload_bytes) as u16)?;
            let id = word(headers, ip.at + 4)?;
            put(headers, ip.at + 4, id.wrapping_add(segments.start as u16))?;
        }
        if is_marked {
            mark(headers, &ip);
        }
        if !ip.is_v6 {
            put(headers, ip.at + 10, 0)?;
            let sum = sum_of(headers.get(ip.at..transport)?);
            put(headers, ip.at + 10, !fold(sum))?;
        }
        let checksum_at = match ip.protocol {
            TCP => {
                let at = transport + 4;
                let sequence = u32::from_be_bytes(*headers.get(at..)?.first_chunk()?);
                let sequence = sequence.wrapping_add(skipped_bytes as u32);
                headers.get_mut(at..at + 4)?.copy_from_slice(&sequence.to_be_bytes());
                let flags = headers.get_mut(transport + 13)?;
                if segments.end < self.segment_count {
                    *flags &= !FIN_PSH;
                }
                if segments.start > 0 {
                    *flags &= !CWR;
                }
                transport + 16
            }
            _ => {
                put(headers, transport + 4, ip_payload_bytes as u16)?;
                transport + 6
            }
        };
        // The field of an unfinished checksum holds the sum of the pseudo-header.
        let addresses = if ip.is_v6 { ip.at + 8..ip.at + 40 } else { ip.at + 12..ip.at + 20 };
        let sum = sum_of(headers.get(addresses)?)
            + u32::from(ip.protocol)
            + (ip_payload_bytes as u32 & 0xffff);
        put(headers, checksum_at, fold(sum))?;
        Some((PortHeader::BYTES + self.header_bytes, payload))
    }
}

/// Room for the headers of a part of a super-frame.
pub(super) type CutHeaders = [u8; PortHeader::BYTES + HEADERS_MAX];

pub(super) fn cut_headers() -> CutHeaders {
    [0; PortHeader::BYTES + HEADERS_MAX]
}

fn is_data(frame: &[u8], ip: &Internet) -> bool {
    let transport = ip.at + ip.bytes;
    match ip.protocol {
        TCP => frame
            .get(transport + 12)
            .is_some_and(|byte| ip.payload_bytes > usize::from(byte >> 4) * 4),
        ICMPV6 => !frame.get(transport).is_some_and(|kind| ICMPV6_OWN.contains(kind)),
        _ => true,
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    bytes.get_mut(at..at + 2)?.copy_from_slice(&value.to_be_bytes());
    Some(())
}

/// Sets both ECN bits, and corrects the checksum of an IPv4 header. Source: RFC 3168 section 5, RFC 1624.
fn mark(frame: &mut [u8], ip: &Internet) {
    let Some(header) = frame.get_mut(ip.at..ip.at + ip.bytes) else { return };
    if ip.is_v6 {
        header[1] |= 0x30;
        return;
    }
    header[1] |= 3;
    header[10..12].fill(0);
    let sum = !fold(sum_of(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn sum_of(bytes: &[u8]) -> u32 {
    bytes.chunks(2).fold(0, |sum, pair| {
        let low = pair.get(1).copied().unwrap_or(0);
        sum + u32::from(u16::from_be_bytes([pair[0], low]))
    })
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A super-frame of TCP: three segments of 100, 100 and 50 bytes, with FIN, PSH and CWR.
    fn super_frame(is_v6: bool, tags: usize) -> (Vec<u8>, PortHeader) {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for _ in 0..tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        let payload: Vec<u8> = (0..250).map(|byte| byte as u8).collect();
        let at = frame.len() + 2;
        let transport = if is_v6 {
            frame.extend([0x86, 0xdd, 0x60, 0x20, 0, 0, 1, 14, 6, 64]);
            frame.extend([0xfd; 16]);
            frame.extend([0xfe; 16]);
            at + 40
        } else {
            frame.extend([
                8, 0, 0x45, 2, 1, 34, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            ]);
            at + 20
        };
        frame.extend([
            0, 80, 0, 81, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 1, 0x50, 0x99, 1, 0, 0, 0, 0, 0,
        ]);
        frame.extend(payload);
        let kind = if is_v6 { SegmentKind::Tcp6 } else { SegmentKind::Tcp4 };
        let header = PortHeader {
            checksum: Some((transport as u16, 16)),
            segments: Some((kind, 100)),
            has_ecn: false,
            header_bytes: transport as u16 + 20,
        };
        (frame, header)
    }

    /// A part of a frame as its receiver sees it.
    fn part(frame: &[u8], header: &PortHeader, segments: Range<u32>) -> (PortHeader, Vec<u8>) {
        let shape = Shape::of(frame, header);
        let mut room = cut_headers();
        let (len, payload) = shape.cut(frame, header, &segments, false, &mut room).unwrap();
        let of_port = PortHeader::read(*room.first_chunk().unwrap());
        (of_port, [&room[PortHeader::BYTES..len], &frame[payload]].concat())
    }

    #[test]
    fn segments_of_a_super_frame_have_the_sizes_of_frames() {
        for (is_v6, tags) in [(false, 0), (false, 1), (true, 0), (true, 2)] {
            let (frame, header) = super_frame(is_v6, tags);
            let shape = Shape::of(&frame, &header);
            assert_eq!((shape.segment_count, shape.is_data, shape.is_uncut), (3, true, false));
            let headers = (14 + tags * 4 + if is_v6 { 60 } else { 40 }) as u64;
            let sizes = [0, 1, 2].map(|segment| shape.wire_bytes(segment));
            assert_eq!(sizes, [100, 100, 50].map(|bytes| headers + bytes + 24));
        }
    }

    #[test]
    fn a_part_is_a_frame_of_its_own() {
        for (is_v6, tags) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let (frame, header) = super_frame(is_v6, tags);
            let ip = 14 + tags * 4;
            let transport = ip + if is_v6 { 40 } else { 20 };
            let (of_port, last) = part(&frame, &header, 1..3);
            assert_eq!(of_port.segments, header.segments);
            assert_eq!(&last[transport + 20..], &frame[transport + 120..]);
            // The sequence number wraps; FIN and PSH stay with the last segment, CWR with the first.
            assert_eq!(last[transport + 4..transport + 8], [0, 0, 0, 0x54]);
            assert_eq!(last[transport + 13], 0x19);
            let (of_port, first) = part(&frame, &header, 0..1);
            assert_eq!((of_port.segments, of_port.checksum), (None, header.checksum));
            assert_eq!((first.len(), first[transport + 13]), (transport + 120, 0x90));
            if is_v6 {
                assert_eq!(word(&first, ip + 4), Some(120));
            } else {
                assert_eq!((word(&first, ip + 2), word(&last, ip + 4)), (Some(140), Some(10)));
                assert_eq!(fold(sum_of(&last[ip..ip + 20])), 0xffff, "the header's checksum");
            }
            // As Linux finishes it: over the transport's bytes with the pseudo-header's sum in the field.
            let mut finished = first.clone();
            let sum = !fold(sum_of(&first[transport..]));
            put(&mut finished, transport + 16, sum).unwrap();
            let addresses = if is_v6 { ip + 8..ip + 40 } else { ip + 12..ip + 20 };
            let all = sum_of(&finished[addresses]) + 6 + 120 + sum_of(&finished[transport..]);
            assert_eq!(fold(all), 0xffff);
        }
    }

    #[test]
    fn frames_that_losses_are_counted_by_carry_data() {
        let plain = PortHeader { checksum: None, segments: None, has_ecn: false, header_bytes: 0 };
        let (mut frame, _) = super_frame(false, 0);
        frame.truncate(54);
        frame[16..18].copy_from_slice(&40_u16.to_be_bytes());
        // Padded to the smallest frame: the packet's length counts.
        frame.extend([0; 6]);
        let acknowledgement = Shape::of(&frame, &plain);
        assert_eq!((acknowledgement.is_data, acknowledgement.wire_bytes(0)), (false, 84));
        frame[16..18].copy_from_slice(&41_u16.to_be_bytes());
        assert!(Shape::of(&frame, &plain).is_data);
        frame[23] = UDP;
        assert!(Shape::of(&frame, &plain).is_data);
        assert!(!Shape::of(&[0; 60], &plain).is_data, "no IP");
        for len in 0..frame.len() {
            Shape::of(&frame[..len], &plain);
        }
    }

    #[test]
    fn a_super_frame_of_another_kind_is_not_cut() {
        let (frame, header) = super_frame(false, 0);
        let other = PortHeader { segments: Some((SegmentKind::Other(3), 100)), ..header };
        let shape = Shape::of(&frame, &other);
        assert_eq!((shape.segment_count, shape.is_uncut), (1, true));
        assert!(Shape::of(&frame, &PortHeader { checksum: None, ..header }).is_uncut);
    }

    #[test]
    fn a_mark_keeps_the_checksum_right() {
        let (mut frame, header) = super_frame(false, 0);
        let shape = Shape::of(&frame, &header);
        assert!(shape.is_ect());
        shape.mark(&mut frame);
        assert_eq!((frame[15] & 3, fold(sum_of(&frame[14..34]))), (3, 0xffff));
    }
}
