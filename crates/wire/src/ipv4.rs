//! IPv4: parses any header, builds headers without options or fragmentation.
//!
//! Source: RFC 791.

use core::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{front, front_mut};
use crate::{FrameError, checksum};

/// Bytes of a header without options.
pub const HEADER_BYTES_MIN: usize = 20;
/// Offset of the class of service.
pub const SERVICE_OFFSET: usize = 1;
/// Offset of the total length.
pub const TOTAL_OFFSET: usize = 2;
/// Offset of flags and fragment offset.
pub const FRAGMENT_OFFSET: usize = 6;
/// Offset of the time to live.
pub const TTL_OFFSET: usize = 8;
/// Offset of the protocol.
pub const PROTOCOL_OFFSET: usize = 9;
/// Offset of the header's checksum.
pub const CHECKSUM_OFFSET: usize = 10;
/// Offset of the sender's address.
pub const SRC_OFFSET: usize = 12;
/// Offset of the receiver's address.
pub const DST_OFFSET: usize = 16;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Time to live of sent packets.
pub const TTL: u8 = 64;

/// Flag: do not fragment.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// More-fragments flag and fragment offset.
const FRAGMENT_MASK: u16 = 0x3fff;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    /// Version in the upper half, header length in 32-bit words in the lower.
    version_words: u8,
    service: u8,
    total_bytes: U16,
    id: U16,
    fragment: U16,
    ttl: u8,
    protocol: u8,
    checksum: U16,
    src: [u8; 4],
    dst: [u8; 4],
}

/// View of a header that fits its packet.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    raw: &'a Raw,
    header_bytes: usize,
    total_bytes: usize,
}

impl<'a> Header<'a> {
    /// Checks version, header length and total length.
    ///
    /// - `bytes`: starts with the whole header.
    /// - `packet_bytes`: length of the packet including padding; `bytes` may be only its start.
    pub fn parse(bytes: &'a [u8], packet_bytes: usize) -> Result<Header<'a>, FrameError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| FrameError::Short {
            what: "the IPv4 header",
            at: 0,
            needed_bytes: HEADER_BYTES_MIN,
            had_bytes: bytes.len(),
        })?;
        let version = raw.version_words >> 4;
        if version != 4 {
            let found = version.into();
            return Err(FrameError::Other { field: "IP version", at: 0, expected: 4, found });
        }
        let header_bytes = usize::from(raw.version_words & 0x0f) * 4;
        if header_bytes < HEADER_BYTES_MIN {
            return Err(FrameError::Length {
                field: "IPv4 header length",
                at: 0,
                min_bytes: HEADER_BYTES_MIN,
                max_bytes: 60,
                found_bytes: header_bytes,
            });
        }
        front(bytes, header_bytes, "the IPv4 header with its options")?;
        let total_bytes = usize::from(raw.total_bytes.get());
        if total_bytes < header_bytes || total_bytes > packet_bytes {
            return Err(FrameError::Length {
                field: "IPv4 total length",
                at: TOTAL_OFFSET,
                min_bytes: header_bytes,
                max_bytes: packet_bytes,
                found_bytes: total_bytes,
            });
        }
        Ok(Header { raw, header_bytes, total_bytes })
    }

    /// Errors: another protocol than `protocol`, or a fragment.
    pub fn expect_whole(&self, protocol: u8) -> Result<(), FrameError> {
        if self.is_fragment() {
            return Err(FrameError::Fragment {
                at: FRAGMENT_OFFSET,
                found: self.raw.fragment.get(),
            });
        }
        if self.raw.protocol != protocol {
            return Err(FrameError::Other {
                field: "IP protocol",
                at: PROTOCOL_OFFSET,
                expected: protocol.into(),
                found: self.raw.protocol.into(),
            });
        }
        Ok(())
    }

    /// Bytes of the header with its options.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Length of the payload, by the header.
    pub fn payload_bytes(&self) -> usize {
        self.total_bytes - self.header_bytes
    }

    /// True for a fragment.
    pub fn is_fragment(&self) -> bool {
        self.raw.fragment.get() & FRAGMENT_MASK != 0
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.raw.protocol
    }

    /// Class of service: DSCP in the upper six bits, ECN in the lower two.
    pub fn service(&self) -> u8 {
        self.raw.service
    }

    /// Time to live: hops left.
    pub fn ttl(&self) -> u8 {
        self.raw.ttl
    }

    /// Sender's address.
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.raw.src)
    }

    /// Receiver's address.
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.raw.dst)
    }
}

/// View of a whole packet.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    header: Header<'a>,
    bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// [`Header::parse`] against the bytes available.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, FrameError> {
        Ok(Packet { header: Header::parse(bytes, bytes.len())?, bytes })
    }

    /// The header.
    pub fn header(&self) -> Header<'a> {
        self.header
    }

    /// Payload without padding.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header.header_bytes..self.header.total_bytes).unwrap_or(&[])
    }

    /// Errors: the header's checksum is wrong.
    pub fn verify_checksum(&self) -> Result<(), FrameError> {
        verify_header_checksum(front(self.bytes, self.header.header_bytes, "the IPv4 header")?)
    }
}

/// Verifies the checksum of a whole header.
pub(crate) fn verify_header_checksum(header: &[u8]) -> Result<(), FrameError> {
    let found = match header.get(CHECKSUM_OFFSET..) {
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    let sum = checksum::sum(header);
    // With a correct checksum, the sum is all ones.
    if sum == 0xffff {
        return Ok(());
    }
    let expected = checksum::finish(checksum::add(sum, !found));
    Err(FrameError::Checksum {
        field: "IPv4 header checksum",
        at: CHECKSUM_OFFSET,
        expected,
        found,
    })
}

/// A header without options, for an unfragmented datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Sender's address.
    pub src: Ipv4Addr,
    /// Receiver's address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// Bytes of the payload.
    pub payload_bytes: usize,
}

impl Repr {
    /// Decodes a packet.
    pub fn of(packet: &Packet<'_>) -> Repr {
        Repr {
            src: packet.header.src(),
            dst: packet.header.dst(),
            protocol: packet.header.protocol(),
            ttl: packet.header.ttl(),
            payload_bytes: packet.header.payload_bytes(),
        }
    }

    /// Writes the header with its checksum to the first [`HEADER_BYTES_MIN`].
    ///
    /// Errors: the buffer is too short, or the payload exceeds the limit of IPv4.
    pub fn write(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let total_bytes = u16::try_from(self.payload_bytes.saturating_add(HEADER_BYTES_MIN))
            .map_err(|_| FrameError::Length {
                field: "IPv4 payload",
                at: HEADER_BYTES_MIN,
                min_bytes: 0,
                max_bytes: usize::from(u16::MAX) - HEADER_BYTES_MIN,
                found_bytes: self.payload_bytes,
            })?;
        let mut raw = Raw {
            version_words: 0x45,
            service: 0,
            total_bytes: U16::new(total_bytes),
            // Datagrams that are never fragmented need no unique id: RFC 6864, 4.1.
            id: U16::ZERO,
            fragment: U16::new(DONT_FRAGMENT),
            ttl: self.ttl,
            protocol: self.protocol,
            checksum: U16::ZERO,
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        raw.checksum = U16::new(checksum::checksum(raw.as_bytes()));
        front_mut(bytes, HEADER_BYTES_MIN, "the IPv4 header")?.copy_from_slice(raw.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_survives_the_wire() {
        let repr = Repr {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
            protocol: PROTOCOL_UDP,
            ttl: 64,
            payload_bytes: 13,
        };
        let mut bytes = [0xcc; 40];
        repr.write(&mut bytes).expect("it fits");
        let packet = Packet::parse(&bytes).expect("it is whole");
        assert_eq!(Repr::of(&packet), repr);
        assert_eq!(bytes[CHECKSUM_OFFSET..][..2], [0x26, 0xca]);
        assert_eq!(packet.verify_checksum(), Ok(()));
        assert_eq!(packet.payload(), [0xcc; 13]);
        assert!(!packet.header().is_fragment());
    }

    #[test]
    fn payload_that_is_too_large_is_refused() {
        let repr = Repr {
            src: Ipv4Addr::UNSPECIFIED,
            dst: Ipv4Addr::UNSPECIFIED,
            protocol: 1,
            ttl: 1,
            payload_bytes: 65_516,
        };
        assert!(matches!(repr.write(&mut [0; 20]), Err(FrameError::Length { .. })));
        assert!(Repr { payload_bytes: usize::MAX, ..repr }.write(&mut [0; 20]).is_err());
        assert!(Repr { payload_bytes: 65_515, ..repr }.write(&mut [0; 20]).is_ok());
        assert!(Repr { payload_bytes: 0, ..repr }.write(&mut [0; 19]).is_err());
    }

    #[test]
    fn truncated_options_are_an_error() {
        let mut bytes = [0; 23];
        bytes[0] = 0x46;
        let error = Packet::parse(&bytes).err().expect("a byte of the options is missing");
        assert!(matches!(error, FrameError::Short { needed_bytes: 24, had_bytes: 23, .. }));
    }
}
