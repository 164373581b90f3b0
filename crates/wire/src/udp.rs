//! UDP over IPv4.
//!
//! Source: RFC 768.

use core::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{front, front_mut};
use crate::{FrameError, checksum, ipv4};

/// Bytes of the header.
pub const HEADER_BYTES: usize = 8;
/// Offset of the sender's port.
pub const SRC_PORT_OFFSET: usize = 0;
/// Offset of the receiver's port.
pub const DST_PORT_OFFSET: usize = 2;
/// Offset of the length.
pub const LEN_OFFSET: usize = 4;
/// Offset of the checksum.
pub const CHECKSUM_OFFSET: usize = 6;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    src_port: U16,
    dst_port: U16,
    len_bytes: U16,
    checksum: U16,
}

/// A header that fits its datagram.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    raw: &'a Raw,
}

impl<'a> Header<'a> {
    /// Checks header and length.
    ///
    /// - `bytes`: starts with the header.
    /// - `datagram_bytes`: length of the IPv4 payload; the datagram may be shorter.
    pub fn parse(bytes: &'a [u8], datagram_bytes: usize) -> Result<Header<'a>, FrameError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| FrameError::Short {
            what: "the UDP header",
            at: 0,
            needed_bytes: HEADER_BYTES,
            had_bytes: bytes.len(),
        })?;
        let len_bytes = usize::from(raw.len_bytes.get());
        if len_bytes < HEADER_BYTES || len_bytes > datagram_bytes {
            return Err(FrameError::Length {
                field: "UDP length",
                at: LEN_OFFSET,
                min_bytes: HEADER_BYTES,
                max_bytes: datagram_bytes,
                found_bytes: len_bytes,
            });
        }
        Ok(Header { raw })
    }

    /// Sender's port.
    pub fn src_port(&self) -> u16 {
        self.raw.src_port.get()
    }

    /// Receiver's port.
    pub fn dst_port(&self) -> u16 {
        self.raw.dst_port.get()
    }

    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.raw.len_bytes.get()).saturating_sub(HEADER_BYTES)
    }

    /// Checksum; 0 for none.
    pub fn checksum(&self) -> u16 {
        self.raw.checksum.get()
    }
}

/// View of a whole datagram.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    header: Header<'a>,
    bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// [`Header::parse`] against the bytes available.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, FrameError> {
        let header = Header::parse(bytes, bytes.len())?;
        let len = HEADER_BYTES + header.payload_bytes();
        Ok(Packet { header, bytes: front(bytes, len, "the UDP datagram")? })
    }

    /// The header.
    pub fn header(&self) -> Header<'a> {
        self.header
    }

    /// Payload.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(HEADER_BYTES..).unwrap_or(&[])
    }

    /// Errors: the checksum is wrong. No checksum is valid.
    pub fn verify_checksum(&self, src: Ipv4Addr, dst: Ipv4Addr) -> Result<(), FrameError> {
        let found = self.header.checksum();
        if found == 0 {
            return Ok(());
        }
        let pseudo = checksum::pseudo_header_sum(
            src,
            dst,
            ipv4::PROTOCOL_UDP,
            self.header.raw.len_bytes.get(),
        );
        let sum = checksum::add(pseudo, checksum::sum(self.bytes));
        // With a correct checksum, the sum is all ones.
        if sum == 0xffff {
            return Ok(());
        }
        let expected = checksum::finish_udp(checksum::add(sum, !found));
        Err(FrameError::Checksum { field: "UDP checksum", at: CHECKSUM_OFFSET, expected, found })
    }
}

/// A header by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Sender's port.
    pub src_port: u16,
    /// Receiver's port.
    pub dst_port: u16,
    /// Bytes of the payload.
    pub payload_bytes: usize,
}

impl Repr {
    /// Decodes a datagram.
    pub fn of(packet: &Packet<'_>) -> Repr {
        Repr {
            src_port: packet.header.src_port(),
            dst_port: packet.header.dst_port(),
            payload_bytes: packet.header.payload_bytes(),
        }
    }

    /// Writes the header to the first [`HEADER_BYTES`], without a checksum (0).
    ///
    /// Errors: the buffer is too short, or the payload exceeds the limit of UDP.
    pub fn write_header(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let max_bytes = usize::from(u16::MAX) - HEADER_BYTES;
        if self.payload_bytes > max_bytes {
            return Err(FrameError::Length {
                field: "UDP payload",
                at: HEADER_BYTES,
                min_bytes: 0,
                max_bytes,
                found_bytes: self.payload_bytes,
            });
        }
        let raw = Raw {
            src_port: U16::new(self.src_port),
            dst_port: U16::new(self.dst_port),
            len_bytes: U16::new(self.len_field()),
            checksum: U16::ZERO,
        };
        front_mut(bytes, HEADER_BYTES, "the UDP header")?.copy_from_slice(raw.as_bytes());
        Ok(())
    }

    /// Writes header and checksum to a datagram whose payload is in place.
    ///
    /// Errors: those of [`Self::write_header`], and a truncated payload.
    pub fn write(&self, bytes: &mut [u8], src: Ipv4Addr, dst: Ipv4Addr) -> Result<(), FrameError> {
        let len = HEADER_BYTES.saturating_add(self.payload_bytes);
        let bytes = front_mut(bytes, len, "the UDP datagram")?;
        self.write_header(bytes)?;
        let pseudo = checksum::pseudo_header_sum(src, dst, ipv4::PROTOCOL_UDP, self.len_field());
        let checksum = checksum::finish_udp(checksum::add(pseudo, checksum::sum(bytes)));
        bytes[CHECKSUM_OFFSET..HEADER_BYTES].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    /// Length field; the writers check that the payload fits.
    pub(crate) fn len_field(&self) -> u16 {
        u16::try_from(self.payload_bytes.saturating_add(HEADER_BYTES)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const REPR: Repr = Repr { src_port: 8080, dst_port: 53, payload_bytes: 8 };

    #[test]
    fn datagram_with_known_checksum_survives_the_wire() {
        let mut bytes = *b"________Wirepath+";
        REPR.write(&mut bytes, SRC, DST).expect("it fits");
        assert_eq!(bytes[..8], [0x1f, 0x90, 0, 0x35, 0, 16, 0x1d, 0x6e]);
        let packet = Packet::parse(&bytes).expect("it is whole");
        assert_eq!(Repr::of(&packet), REPR);
        assert_eq!(packet.payload(), b"Wirepath");
        assert_eq!(packet.verify_checksum(SRC, DST), Ok(()));
        let wrong = packet.verify_checksum(SRC, Ipv4Addr::new(10, 0, 0, 3));
        let (expected, found) = (0x1d6d, 0x1d6e);
        assert_eq!(
            wrong,
            Err(FrameError::Checksum { field: "UDP checksum", at: 6, expected, found })
        );
    }

    #[test]
    fn no_checksum_is_no_error() {
        let mut bytes = *b"________Wirepath";
        REPR.write_header(&mut bytes).expect("it fits");
        let packet = Packet::parse(&bytes).expect("it is whole");
        assert_eq!(packet.header().checksum(), 0);
        assert_eq!(packet.verify_checksum(SRC, DST), Ok(()));
    }

    #[test]
    fn invalid_lengths_are_refused() {
        assert!(REPR.write(&mut [0; 15], SRC, DST).is_err());
        let long = Repr { payload_bytes: 65_528, ..REPR };
        assert!(matches!(long.write_header(&mut [0; 8]), Err(FrameError::Length { .. })));
        let endless = Repr { payload_bytes: usize::MAX, ..REPR };
        assert!(endless.write(&mut [0; 8], SRC, DST).is_err());
        assert!(Packet::parse(&[0, 1, 0, 2, 0, 9, 0, 0]).is_err());
        assert!(Packet::parse(&[0, 1, 0, 2, 0, 7, 0, 0]).is_err());
    }
}
