//! IPv6: the fixed header, and a walk over extension headers to the upper layer.
//!
//! Source: RFC 8200.

use core::net::Ipv6Addr;

use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{front, front_mut};
use crate::{FrameError, checksum};

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;
/// Offset of the payload's length.
pub const PAYLOAD_OFFSET: usize = 4;
/// Offset of the number of the next header.
pub const NEXT_OFFSET: usize = 6;
/// Offset of the hop limit.
pub const HOPS_OFFSET: usize = 7;
/// Offset of the sender's address.
pub const SRC_OFFSET: usize = 8;
/// Offset of the receiver's address.
pub const DST_OFFSET: usize = 24;
/// Largest payload of a packet without the jumbogram option.
pub const PAYLOAD_BYTES_MAX: usize = 0xffff;

/// Extension header: hop-by-hop options.
const HOP_BY_HOP: u8 = 0;
/// Extension header: routing.
const ROUTING: u8 = 43;
/// Extension header: fragment.
const FRAGMENT: u8 = 44;
/// Extension header: options for the destination.
const DESTINATION: u8 = 60;
/// Largest number of extension headers walked.
const EXTENSIONS_MAX: usize = 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    /// Version (4 bits), traffic class (8), flow label (20).
    first: U32,
    payload_bytes: U16,
    next: u8,
    hops: u8,
    src: [u8; 16],
    dst: [u8; 16],
}

/// View of a header that fits its packet.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    raw: &'a Raw,
}

impl<'a> Header<'a> {
    /// Checks version and payload length.
    ///
    /// - `bytes`: starts with the whole header.
    /// - `packet_bytes`: length of the packet including padding; `bytes` may be only its start.
    pub fn parse(bytes: &'a [u8], packet_bytes: usize) -> Result<Header<'a>, FrameError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| FrameError::Short {
            what: "the IPv6 header",
            at: 0,
            needed_bytes: HEADER_BYTES,
            had_bytes: bytes.len(),
        })?;
        let version = raw.first.get() >> 28;
        if version != 6 {
            return Err(FrameError::Other {
                field: "IP version",
                at: 0,
                expected: 6,
                found: version,
            });
        }
        let payload_bytes = usize::from(raw.payload_bytes.get());
        let max_bytes = packet_bytes.saturating_sub(HEADER_BYTES);
        if payload_bytes > max_bytes {
            return Err(FrameError::Length {
                field: "IPv6 payload length",
                at: PAYLOAD_OFFSET,
                min_bytes: 0,
                max_bytes,
                found_bytes: payload_bytes,
            });
        }
        Ok(Header { raw })
    }

    /// Errors: the next header is not `protocol`. Extension headers, and so fragments, are refused.
    pub fn expect_next(&self, protocol: u8) -> Result<(), FrameError> {
        if self.raw.next == protocol {
            return Ok(());
        }
        Err(FrameError::Other {
            field: "IPv6 next header",
            at: NEXT_OFFSET,
            expected: protocol.into(),
            found: self.raw.next.into(),
        })
    }

    /// Length of the payload, by the header.
    pub fn payload_bytes(&self) -> usize {
        self.raw.payload_bytes.get().into()
    }

    /// Number of the next header.
    pub fn next(&self) -> u8 {
        self.raw.next
    }

    /// True if the next header is a fragment header.
    pub fn is_fragment(&self) -> bool {
        self.raw.next == FRAGMENT
    }

    /// Class of service: DSCP in the upper six bits, ECN in the lower two.
    pub fn service(&self) -> u8 {
        (self.raw.first.get() >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.raw.first.get() & 0x000f_ffff
    }

    /// Hops left.
    pub fn hops(&self) -> u8 {
        self.raw.hops
    }

    /// Sender's address.
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.raw.src)
    }

    /// Receiver's address.
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.raw.dst)
    }
}

/// A header by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Sender's address.
    pub src: Ipv6Addr,
    /// Receiver's address.
    pub dst: Ipv6Addr,
    /// Number of the next header.
    pub next: u8,
    /// Hop limit.
    pub hops: u8,
    /// Class of service: DSCP in the upper six bits, ECN in the lower two.
    pub service: u8,
    /// Flow label; its lower 20 bits.
    pub flow_label: u32,
    /// Bytes of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: usize,
}

impl Repr {
    /// Writes the header to the first [`HEADER_BYTES`].
    ///
    /// Errors: the buffer is too short, or the payload too large.
    pub fn write(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let payload_bytes = u16::try_from(self.payload_bytes).map_err(|_| FrameError::Length {
            field: "IPv6 payload",
            at: PAYLOAD_OFFSET,
            min_bytes: 0,
            max_bytes: PAYLOAD_BYTES_MAX,
            found_bytes: self.payload_bytes,
        })?;
        let first = 6 << 28 | u32::from(self.service) << 20 | self.flow_label & 0x000f_ffff;
        let raw = Raw {
            first: U32::new(first),
            payload_bytes: U16::new(payload_bytes),
            next: self.next,
            hops: self.hops,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        front_mut(bytes, HEADER_BYTES, "the IPv6 header")?.copy_from_slice(raw.as_bytes());
        Ok(())
    }
}

/// Sum of the pseudo header that an upper layer's checksum covers in addition to its packet.
///
/// - `upper_bytes`: the upper layer's header and payload.
///
/// Source: RFC 8200, section 8.1.
pub fn pseudo_header_sum(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, upper_bytes: u32) -> u16 {
    let addresses = checksum::add(checksum::sum(&src.octets()), checksum::sum(&dst.octets()));
    let length = checksum::add((upper_bytes >> 16) as u16, upper_bytes as u16);
    checksum::add(addresses, checksum::add(length, protocol.into()))
}

/// Upper layer of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper {
    /// Protocol number.
    pub protocol: u8,
    /// Offset in the packet.
    pub at: usize,
    /// The packet is a fragment or the walk ended early, so ports cannot be read.
    pub is_opaque: bool,
}

/// Skips hop-by-hop options, routing, fragment and destination options.
///
/// - `packet`: starts with the checked fixed header.
///
/// The walk ends early at the end of the packet or after eight extension headers.
pub fn upper(packet: &[u8], header: &Header<'_>) -> Upper {
    let mut upper = Upper { protocol: header.next(), at: HEADER_BYTES, is_opaque: false };
    for _ in 0..EXTENSIONS_MAX {
        if !matches!(upper.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
            return upper;
        }
        let Some([next, words, ..]) = packet.get(upper.at..) else {
            return Upper { is_opaque: true, ..upper };
        };
        let bytes = match upper.protocol {
            FRAGMENT => 8,
            _ => 8 + usize::from(*words) * 8,
        };
        upper.is_opaque |= upper.protocol == FRAGMENT;
        upper.protocol = *next;
        upper.at += bytes;
    }
    Upper { is_opaque: true, ..upper }
}

/// Verifies the checksum of a UDP datagram. The caller handles a checksum of 0 (RFC 6935).
///
/// - `datagram`: as long as its header says.
pub fn verify_udp_checksum(
    datagram: &[u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
) -> Result<(), FrameError> {
    const AT: usize = crate::udp::CHECKSUM_OFFSET;
    let found = match front(datagram, crate::udp::HEADER_BYTES, "the UDP header")? {
        [.., high, low] => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    let pseudo = pseudo_header_sum(src, dst, crate::ipv4::PROTOCOL_UDP, datagram.len() as u32);
    let sum = checksum::add(pseudo, checksum::sum(datagram));
    // With a correct checksum, the sum is all ones.
    if sum == 0xffff {
        return Ok(());
    }
    let expected = checksum::finish_udp(checksum::add(sum, !found));
    Err(FrameError::Checksum { field: "UDP checksum", at: AT, expected, found })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const REPR: Repr = Repr {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        next: 17,
        hops: 64,
        service: 0xb9,
        flow_label: 0xabcde,
        payload_bytes: 13,
    };

    fn packet() -> Vec<u8> {
        let mut bytes = [0; 53].to_vec();
        REPR.write(&mut bytes).expect("it fits");
        bytes
    }

    #[test]
    fn header_survives_the_wire() {
        let bytes = packet();
        assert_eq!(bytes[..8], [0x6b, 0x9a, 0xbc, 0xde, 0, 13, 17, 64]);
        let header = Header::parse(&bytes, bytes.len()).expect("it is whole");
        let again = Repr {
            src: header.src(),
            dst: header.dst(),
            next: header.next(),
            hops: header.hops(),
            service: header.service(),
            flow_label: header.flow_label(),
            payload_bytes: header.payload_bytes(),
        };
        assert_eq!(again, REPR);
        assert_eq!(header.expect_next(17), Ok(()));
        assert!(header.expect_next(6).is_err() && !header.is_fragment());
    }

    #[test]
    fn cut_other_and_overlong_headers_are_errors() {
        let bytes = packet();
        for len in 0..HEADER_BYTES {
            assert!(Header::parse(&bytes[..len], 53).is_err(), "{len} bytes");
        }
        assert!(Header::parse(&bytes, 52).is_err());
        assert!(Header::parse(&bytes, 60).is_ok(), "padding is allowed");
        let mut other = bytes.clone();
        other[0] = 0x4b;
        let error = Header::parse(&other, 53).err();
        assert_eq!(
            error,
            Some(FrameError::Other { field: "IP version", at: 0, expected: 6, found: 4 })
        );
        assert!(Repr { payload_bytes: 0x1_0000, ..REPR }.write(&mut [0; 60]).is_err());
        assert!(REPR.write(&mut [0; 39]).is_err());
    }

    fn words(bytes: &[u8]) -> u64 {
        bytes.chunks(2).fold(0u64, |sum, pair| {
            sum + u64::from(pair[0]) * 256 + u64::from(*pair.get(1).unwrap_or(&0))
        })
    }

    #[test]
    fn known_udp_checksum_is_right() {
        // fd00::1:8080 to fd00::2:53, "hello"; checksum computed by another program.
        let mut datagram = [0x1f, 0x90, 0, 0x35, 0, 13, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        let total =
            words(&REPR.src.octets()) + words(&REPR.dst.octets()) + 17 + 13 + words(&datagram);
        let checksum = !(total % 0xffff) as u16;
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(verify_udp_checksum(&datagram, REPR.src, REPR.dst), Ok(()));
        datagram[9] ^= 1;
        let error = verify_udp_checksum(&datagram, REPR.src, REPR.dst);
        assert!(matches!(error, Err(FrameError::Checksum { at: 6, .. })), "{error:?}");
        assert!(verify_udp_checksum(&datagram[..7], REPR.src, REPR.dst).is_err());
    }

    fn walk(next: u8, rest: &[u8]) -> Upper {
        let mut bytes = [0; HEADER_BYTES].to_vec();
        let repr = Repr { next, payload_bytes: rest.len(), ..REPR };
        repr.write(&mut bytes).expect("it fits");
        bytes.extend(rest);
        let header = Header::parse(&bytes, bytes.len()).expect("it is whole");
        upper(&bytes, &header)
    }

    #[test]
    fn upper_layer_is_found_after_extension_headers() {
        assert_eq!(walk(6, &[0; 20]), Upper { protocol: 6, at: 40, is_opaque: false });
        let mut rest = [0; 40];
        (rest[0], rest[1]) = (DESTINATION, 1); // hop-by-hop, 16 bytes
        (rest[16], rest[17]) = (17, 0);
        assert_eq!(walk(HOP_BY_HOP, &rest), Upper { protocol: 17, at: 64, is_opaque: false });
        (rest[0], rest[1]) = (17, 0xff); // of a fragment, that byte is reserved
        assert_eq!(walk(FRAGMENT, &rest), Upper { protocol: 17, at: 48, is_opaque: true });
        assert!(walk(ROUTING, &[17]).is_opaque, "cut");
        let endless: Vec<u8> = [DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(20);
        assert!(walk(DESTINATION, &endless).is_opaque);
    }
}
