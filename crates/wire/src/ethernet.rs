//! Ethernet II, with at most one VLAN tag.
//!
//! Source: IEEE 802.3 and 802.1Q.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FrameError;
use crate::error::{front, front_mut};

/// Bytes of the header without a VLAN tag.
pub const HEADER_BYTES: usize = 14;
/// Bytes that a VLAN tag adds.
pub const VLAN_BYTES: usize = 4;
/// VLAN in a tag, beside its priority.
pub const VLAN_MASK: u16 = 0x0fff;
/// Offset of the receiver's address.
pub const DST_OFFSET: usize = 0;
/// Offset of the sender's address.
pub const SRC_OFFSET: usize = 6;
/// Offset of the EtherType, or of the VLAN tag's EtherType.
pub const TYPE_OFFSET: usize = 12;
/// EtherType of IPv4.
pub const TYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const TYPE_IPV6: u16 = 0x86dd;
/// EtherType of ARP.
pub const TYPE_ARP: u16 = 0x0806;
/// EtherType of a VLAN tag.
pub const TYPE_VLAN: u16 = 0x8100;
/// EtherType of a provider's VLAN tag (802.1ad).
pub const TYPE_PROVIDER_VLAN: u16 = 0x88a8;
/// VLAN tags that [`network`] skips.
const TAGS_MAX: usize = 2;
/// Broadcast address.
pub const BROADCAST: [u8; 6] = [0xff; 6];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    dst: [u8; 6],
    src: [u8; 6],
    ethertype: U16,
}

/// View of a frame with a complete header.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    header: &'a Raw,
    ethertype: u16,
    vlan: Option<u16>,
}

impl<'a> Packet<'a> {
    /// Errors: the header or its VLAN tag is truncated.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, FrameError> {
        front(bytes, HEADER_BYTES, "the Ethernet header")?;
        let short = FrameError::Short {
            what: "the Ethernet header with its VLAN tag",
            at: 0,
            needed_bytes: HEADER_BYTES + VLAN_BYTES,
            had_bytes: bytes.len(),
        };
        let (header, rest) = Raw::ref_from_prefix(bytes).map_err(|_| short)?;
        let ethertype = header.ethertype.get();
        if !is_vlan(ethertype) {
            return Ok(Packet { bytes, header, ethertype, vlan: None });
        }
        let (tag, _) = <[U16; 2]>::ref_from_prefix(rest).map_err(|_| short)?;
        Ok(Packet { bytes, header, ethertype: tag[1].get(), vlan: Some(tag[0].get()) })
    }

    /// Receiver's address.
    pub fn dst(&self) -> [u8; 6] {
        self.header.dst
    }

    /// Sender's address.
    pub fn src(&self) -> [u8; 6] {
        self.header.src
    }

    /// EtherType of the payload.
    pub fn ethertype(&self) -> u16 {
        self.ethertype
    }

    /// VLAN of the frame, 0 to 4095, if it has a tag.
    pub fn vlan(&self) -> Option<u16> {
        self.vlan.map(|tag| tag & VLAN_MASK)
    }

    /// Bytes of the header with its tag.
    pub fn header_bytes(&self) -> usize {
        HEADER_BYTES + if self.vlan.is_some() { VLAN_BYTES } else { 0 }
    }

    /// Payload, including the padding of short frames.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_bytes()..).unwrap_or(&[])
    }
}

/// A header without a VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Receiver's address.
    pub dst: [u8; 6],
    /// Sender's address.
    pub src: [u8; 6],
    /// EtherType of the payload.
    pub ethertype: u16,
}

impl Repr {
    /// Writes the header to the first [`HEADER_BYTES`]. Errors: the buffer is too short.
    pub fn write(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let raw = Raw { dst: self.dst, src: self.src, ethertype: U16::new(self.ethertype) };
        front_mut(bytes, HEADER_BYTES, "the Ethernet header")?.copy_from_slice(raw.as_bytes());
        Ok(())
    }
}

/// Offset of the IP header in a frame, and true for IPv6. Errors: the frame is not IP.
pub(crate) fn ip_offset(frame: &[u8]) -> Result<(usize, bool), FrameError> {
    let packet = Packet::parse(frame)?;
    let at = packet.header_bytes();
    if matches!(packet.ethertype, TYPE_IPV4 | TYPE_IPV6) {
        return Ok((at, packet.ethertype == TYPE_IPV6));
    }
    Err(FrameError::Other {
        field: "EtherType",
        at: at - 2,
        expected: TYPE_IPV4.into(),
        found: packet.ethertype.into(),
    })
}

/// EtherType behind up to two VLAN tags, and the offset of what follows it; `None` if that is cut.
#[inline]
pub fn network(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = TYPE_OFFSET;
    let mut ethertype = type_at(frame, at)?;
    for _ in 0..TAGS_MAX {
        if !is_vlan(ethertype) {
            break;
        }
        at += VLAN_BYTES;
        ethertype = type_at(frame, at)?;
    }
    Some((ethertype, at + 2))
}

#[inline]
fn type_at(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

#[inline]
fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, TYPE_VLAN | TYPE_PROVIDER_VLAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPR: Repr =
        Repr { dst: [1, 2, 3, 4, 5, 6], src: [7, 8, 9, 10, 11, 12], ethertype: 0x0806 };

    #[test]
    fn header_survives_the_wire() {
        let mut bytes = [0xcc; 16];
        REPR.write(&mut bytes).expect("it fits");
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 6, 0xcc, 0xcc]);
        let packet = Packet::parse(&bytes).expect("it is whole");
        assert_eq!((packet.dst(), packet.src(), packet.ethertype()), (REPR.dst, REPR.src, 0x0806));
        assert_eq!((packet.vlan(), packet.payload()), (None, &[0xcc, 0xcc][..]));
    }

    #[test]
    fn one_vlan_tag_is_parsed_and_a_second_is_payload() {
        let mut bytes = [0; 20];
        REPR.write(&mut bytes).expect("it fits");
        bytes[12..].copy_from_slice(&[0x88, 0xa8, 0xe0, 0x05, 0x81, 0x00, 0, 9]);
        let packet = Packet::parse(&bytes).expect("it is whole");
        assert_eq!((packet.vlan(), packet.ethertype()), (Some(5), TYPE_VLAN));
        assert_eq!(packet.payload(), [0, 9]);
        let error = ip_offset(&bytes).expect_err("two tags are not supported");
        let at = 16;
        assert_eq!(
            error,
            FrameError::Other { field: "EtherType", at, expected: 0x0800, found: 0x8100 }
        );
    }

    #[test]
    fn network_layer_is_found_behind_up_to_two_tags() {
        let mut bytes = [0; 24];
        bytes[12..].copy_from_slice(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 9, 0x81, 0, 8, 0]);
        assert_eq!(network(&bytes), Some((TYPE_VLAN, 22)), "a third tag is not read");
        bytes[20..22].copy_from_slice(&TYPE_IPV6.to_be_bytes());
        assert_eq!(network(&bytes), Some((TYPE_IPV6, 22)));
        assert_eq!(network(&bytes[..21]), None);
        bytes[12..14].copy_from_slice(&TYPE_ARP.to_be_bytes());
        assert_eq!(network(&bytes[..14]), Some((TYPE_ARP, 14)));
        assert_eq!(network(&bytes[..13]), None);
    }

    #[test]
    fn cut_header_and_cut_tag_are_errors() {
        let mut bytes = [0; 18];
        bytes[12] = 0x81;
        for len in 0..18 {
            assert!(Packet::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(Packet::parse(&bytes).is_ok());
        assert!(REPR.write(&mut [0; 13]).is_err());
    }
}
