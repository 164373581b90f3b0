//! GRE with its options: checksum, key and sequence number. With EtherType
//! [`TYPE_BRIDGED`], GRETAP.
//!
//! Source: RFC 2784, options RFC 2890.

use crate::error::{front, front_mut};
use crate::{FrameError, checksum};

/// IP protocol number of GRE.
pub const PROTOCOL: u8 = 47;
/// EtherType of a whole Ethernet frame as payload: transparent Ethernet bridging.
pub const TYPE_BRIDGED: u16 = 0x6558;
/// Bytes of a header without options.
pub const HEADER_BYTES_MIN: usize = 4;
/// Bytes of a header with all options.
pub const HEADER_BYTES_MAX: usize = 16;
/// Offset of the protocol type.
pub const TYPE_OFFSET: usize = 2;
/// Offset of the checksum, in a header that has one.
pub const CHECKSUM_OFFSET: usize = 4;

const CHECKSUM_PRESENT: u16 = 0x8000;
const KEY_PRESENT: u16 = 0x2000;
const SEQUENCE_PRESENT: u16 = 0x1000;
/// Bits of RFC 1701 (routing, strict routing, upper bit of the recursion count): a receiver that
/// does not support them must discard the packet.
const FOREIGN: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

/// A header by value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The packet has a checksum over header and payload.
    pub has_checksum: bool,
    /// Tunnel between the same two endpoints.
    pub key: Option<u32>,
    /// Sequence number of the packet.
    pub sequence: Option<u32>,
    /// EtherType of the payload.
    pub ethertype: u16,
}

fn flag_bit(on: bool, flag: u16) -> u16 {
    if on { flag } else { 0 }
}

impl Repr {
    /// Reads the header that `bytes` start with. The checksum is for [`verify_checksum`].
    ///
    /// Reserved bits that RFC 2784 says to ignore are ignored; version and bits of older
    /// specifications are errors.
    pub fn parse(bytes: &[u8]) -> Result<Repr, FrameError> {
        front(bytes, HEADER_BYTES_MIN, "the GRE header")?;
        let flags = word(bytes, 0);
        if flags & VERSION != 0 {
            let found = (flags & VERSION).into();
            return Err(FrameError::Other { field: "GRE version", at: 1, expected: 0, found });
        }
        if flags & FOREIGN != 0 {
            let found = (flags & FOREIGN).into();
            return Err(FrameError::Other { field: "GRE flags", at: 0, expected: 0, found });
        }
        let repr = Repr {
            has_checksum: flags & CHECKSUM_PRESENT != 0,
            key: (flags & KEY_PRESENT != 0).then_some(0),
            sequence: (flags & SEQUENCE_PRESENT != 0).then_some(0),
            ethertype: word(bytes, TYPE_OFFSET),
        };
        front(bytes, repr.header_bytes(), "the GRE header with its options")?;
        let number = |at: usize| u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2));
        Ok(Repr {
            key: repr.key_offset().map(number),
            sequence: repr.sequence_offset().map(number),
            ..repr
        })
    }

    /// Bytes of the header with its options.
    pub fn header_bytes(&self) -> usize {
        let options = usize::from(self.has_checksum)
            + usize::from(self.key.is_some())
            + usize::from(self.sequence.is_some());
        HEADER_BYTES_MIN + 4 * options
    }

    /// Offset of the key, if any.
    pub fn key_offset(&self) -> Option<usize> {
        self.key.map(|_| HEADER_BYTES_MIN + 4 * usize::from(self.has_checksum))
    }

    /// Offset of the sequence number, if any.
    pub fn sequence_offset(&self) -> Option<usize> {
        self.sequence.map(|_| self.header_bytes() - 4)
    }

    /// Writes the header to the first [`Self::header_bytes`], with a checksum of zero: see
    /// [`fill_checksum`]. Errors: the buffer is too short.
    pub fn write(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let bytes = front_mut(bytes, self.header_bytes(), "the GRE header")?;
        bytes.fill(0);
        let flags = flag_bit(self.has_checksum, CHECKSUM_PRESENT)
            | flag_bit(self.key.is_some(), KEY_PRESENT)
            | flag_bit(self.sequence.is_some(), SEQUENCE_PRESENT);
        bytes[..2].copy_from_slice(&flags.to_be_bytes());
        bytes[TYPE_OFFSET..TYPE_OFFSET + 2].copy_from_slice(&self.ethertype.to_be_bytes());
        let options = [(self.key_offset(), self.key), (self.sequence_offset(), self.sequence)];
        for (at, number) in options {
            if let (Some(at), Some(number)) = (at, number) {
                bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
        }
        Ok(())
    }
}

/// Fills in the checksum.
///
/// - `packet`: a header with the checksum flag, and the whole payload.
pub fn fill_checksum(packet: &mut [u8]) -> Result<(), FrameError> {
    front(packet, CHECKSUM_OFFSET + 4, "the GRE checksum")?;
    packet[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].fill(0);
    let checksum = checksum::checksum(packet);
    packet[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Verifies the checksum of a packet that has one.
///
/// - `packet`: header and payload.
pub fn verify_checksum(packet: &[u8]) -> Result<(), FrameError> {
    front(packet, CHECKSUM_OFFSET + 4, "the GRE checksum")?;
    let sum = checksum::sum(packet);
    // With a correct checksum, the sum is all ones.
    if sum == 0xffff {
        return Ok(());
    }
    let found = word(packet, CHECKSUM_OFFSET);
    let expected = checksum::finish(checksum::add(sum, !found));
    Err(FrameError::Checksum { field: "GRE checksum", at: CHECKSUM_OFFSET, expected, found })
}

/// The word at `at`, which the caller has checked; 0 if out of range.
fn word(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..) {
        Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRIDGED: Repr =
        Repr { has_checksum: false, key: None, sequence: None, ethertype: TYPE_BRIDGED };

    #[test]
    fn plain_header_is_four_known_bytes() {
        let mut bytes = [0xcc; 5];
        BRIDGED.write(&mut bytes).expect("it fits");
        assert_eq!(bytes, [0, 0, 0x65, 0x58, 0xcc]);
        assert_eq!(Repr::parse(&bytes), Ok(BRIDGED));
    }

    #[test]
    fn options_are_in_the_order_of_the_rfc() {
        let all = Repr {
            has_checksum: true,
            key: Some(0x0102_0304),
            sequence: Some(0x0506_0708),
            ..BRIDGED
        };
        let mut bytes = [0xcc; 16];
        all.write(&mut bytes).expect("it fits");
        assert_eq!(bytes, [0xb0, 0, 0x65, 0x58, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Repr::parse(&bytes), Ok(all));
        for len in 0..16 {
            assert!(Repr::parse(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(all.write(&mut [0; 15]).is_err());
    }

    #[test]
    fn each_set_of_options_survives_the_wire() {
        for bits in 0..8 {
            let repr = Repr {
                has_checksum: bits & 1 != 0,
                key: (bits & 2 != 0).then_some(7),
                sequence: (bits & 4 != 0).then_some(u32::MAX),
                ethertype: 0x0800,
            };
            let mut bytes = [0xcc; HEADER_BYTES_MAX];
            repr.write(&mut bytes).expect("it fits");
            assert_eq!(Repr::parse(&bytes[..repr.header_bytes()]), Ok(repr));
            assert!(bytes[repr.header_bytes()..].iter().all(|byte| *byte == 0xcc));
        }
    }

    #[test]
    fn other_versions_and_routing_are_refused_and_reserved_bits_are_not() {
        let parse = |flags: u16| {
            let [high, low] = flags.to_be_bytes();
            Repr::parse(&[high, low, 0x65, 0x58])
        };
        for version in 1..8 {
            assert!(parse(version).is_err());
        }
        for bit in [0x4000, 0x0800, 0x0400] {
            assert!(parse(bit).is_err(), "{bit:#x}");
        }
        for bit in [0x0200, 0x0100, 0x0080, 0x0008] {
            assert_eq!(parse(bit), Ok(BRIDGED), "{bit:#x}");
        }
    }

    #[test]
    fn checksum_covers_header_and_payload() {
        let repr = Repr { has_checksum: true, key: Some(5), ..BRIDGED };
        let mut packet = [0xa5; 12 + 61];
        repr.write(&mut packet).expect("it fits");
        assert!(verify_checksum(&packet).is_err());
        fill_checksum(&mut packet).expect("it fits");
        assert_eq!(verify_checksum(&packet), Ok(()));
        for at in 0..packet.len() {
            packet[at] ^= 0x10;
            let error = verify_checksum(&packet);
            assert!(matches!(error, Err(FrameError::Checksum { .. })), "byte {at}: {error:?}");
            packet[at] ^= 0x10;
        }
        assert!(fill_checksum(&mut packet[..7]).is_err() && verify_checksum(&[]).is_err());
    }
}
