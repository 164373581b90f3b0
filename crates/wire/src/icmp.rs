//! ICMP echo request and reply, and the report of a packet that is too big for the path.
//!
//! Source: RFC 792, RFC 1191, RFC 4443.

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::front_mut;
use crate::{FrameError, checksum};

/// Bytes of the header of an echo message.
pub const HEADER_BYTES: usize = 8;
/// Offset of the checksum.
pub const CHECKSUM_OFFSET: usize = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    kind: u8,
    code: u8,
    checksum: U16,
    id: U16,
    sequence: U16,
}

/// Request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Reply (type 0).
    EchoReply = 0,
    /// Request (type 8).
    EchoRequest = 8,
}

/// View of an echo message with a correct checksum.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    raw: &'a Raw,
    kind: Kind,
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks type, code and checksum of a whole message: the payload of an IPv4 packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, FrameError> {
        let (raw, payload) = Raw::ref_from_prefix(bytes).map_err(|_| FrameError::Short {
            what: "the ICMP header",
            at: 0,
            needed_bytes: HEADER_BYTES,
            had_bytes: bytes.len(),
        })?;
        let kind = match raw.kind {
            0 => Kind::EchoReply,
            8 => Kind::EchoRequest,
            found => {
                return Err(FrameError::Other {
                    field: "ICMP type",
                    at: 0,
                    expected: Kind::EchoRequest as u32,
                    found: found.into(),
                });
            }
        };
        if raw.code != 0 {
            let found = raw.code.into();
            return Err(FrameError::Other { field: "ICMP code", at: 1, expected: 0, found });
        }
        let found = raw.checksum.get();
        let sum = checksum::sum(bytes);
        // With a correct checksum, the sum is all ones; a message of zeros is invalid.
        if sum != 0xffff {
            let expected = checksum::finish(checksum::add(sum, !found));
            let field = "ICMP checksum";
            return Err(FrameError::Checksum { field, at: CHECKSUM_OFFSET, expected, found });
        }
        Ok(Packet { raw, kind, payload })
    }

    /// Request or reply.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Id of the conversation.
    pub fn id(&self) -> u16 {
        self.raw.id.get()
    }

    /// Number of the request in the conversation.
    pub fn sequence(&self) -> u16 {
        self.raw.sequence.get()
    }

    /// Payload, which the reply repeats.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header of an echo message by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Request or reply.
    pub kind: Kind,
    /// Id of the conversation.
    pub id: u16,
    /// Number of the request in the conversation.
    pub sequence: u16,
}

impl Repr {
    /// Decodes a message.
    pub fn of(packet: &Packet<'_>) -> Repr {
        Repr { kind: packet.kind, id: packet.id(), sequence: packet.sequence() }
    }

    /// Writes header and checksum to `message`, whose payload is in place.
    ///
    /// Errors: the message is shorter than the header.
    pub fn write(&self, message: &mut [u8]) -> Result<(), FrameError> {
        let raw = Raw {
            kind: self.kind as u8,
            code: 0,
            checksum: U16::ZERO,
            id: U16::new(self.id),
            sequence: U16::new(self.sequence),
        };
        front_mut(message, HEADER_BYTES, "the ICMP header")?.copy_from_slice(raw.as_bytes());
        let checksum = checksum::checksum(message);
        message[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

/// A router's report that a packet does not fit the next link of its path, and may not be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooBig<'a> {
    /// MTU of that link, in bytes; 0 from a router that does not tell it (RFC 1191, section 5).
    pub mtu_bytes: u32,
    /// The packet from its IP header on, as much as the router returns.
    pub quoted: &'a [u8],
}

impl<'a> TooBig<'a> {
    /// Reads "fragmentation needed" of IPv4 (type 3, code 4), the payload of an IPv4 packet. `None` for other
    /// messages, and for a wrong checksum.
    pub fn parse_v4(message: &'a [u8]) -> Option<TooBig<'a>> {
        let (header, quoted) = message.split_first_chunk::<HEADER_BYTES>()?;
        let [3, 4, _, _, _, _, high, low] = *header else { return None };
        let is_whole = checksum::sum(message) == 0xffff;
        is_whole.then_some(TooBig { mtu_bytes: u16::from_be_bytes([high, low]).into(), quoted })
    }

    /// Reads "packet too big" of IPv6 (type 2), the payload of an IPv6 packet. `None` for other messages.
    ///
    /// The checksum, which is over a pseudo header too, is not checked: the kernel does for its sockets.
    pub fn parse_v6(message: &'a [u8]) -> Option<TooBig<'a>> {
        let (header, quoted) = message.split_first_chunk::<HEADER_BYTES>()?;
        let [2, 0, _, _, mtu @ ..] = *header else { return None };
        Some(TooBig { mtu_bytes: u32::from_be_bytes(mtu), quoted })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The well-known ping with the alphabet in it, id 1, sequence 1: checksum 0x4d5a.
    const PING: [u8; 40] = *b"\x08\0\x4d\x5a\0\x01\0\x01abcdefghijklmnopqrstuvwabcdefghi";
    const REPR: Repr = Repr { kind: Kind::EchoRequest, id: 1, sequence: 1 };

    #[test]
    fn known_request_is_read_and_written() {
        let packet = Packet::parse(&PING).expect("it is whole");
        assert_eq!(Repr::of(&packet), REPR);
        assert_eq!(packet.payload(), &PING[8..]);
        let mut bytes = PING;
        bytes[..8].fill(0xcc);
        REPR.write(&mut bytes).expect("it fits");
        assert_eq!(bytes, PING);
    }

    #[test]
    fn wrong_checksum_other_type_and_code_are_refused() {
        let mut bytes = PING;
        bytes[39] ^= 1;
        assert_eq!(
            Packet::parse(&bytes).err(),
            Some(FrameError::Checksum {
                field: "ICMP checksum",
                at: 2,
                expected: 0x4d5b,
                found: 0x4d5a,
            })
        );
        for at in [0, 1] {
            let mut bytes = PING;
            bytes[at] = 3;
            let error = Packet::parse(&bytes).err().expect("it is modified");
            assert!(matches!(error, FrameError::Other { at: found, .. } if found == at), "{at}");
        }
        assert!(Packet::parse(&PING[..7]).is_err());
        assert!(REPR.write(&mut [0; 7]).is_err());
    }

    #[test]
    fn report_of_a_packet_that_is_too_big_has_the_mtu_and_the_packet() {
        let mut message = *b"\x03\x04\0\0\0\0\x05\x14quoted";
        let sum = checksum::checksum(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        let expected = TooBig { mtu_bytes: 1300, quoted: b"quoted" };
        assert_eq!(TooBig::parse_v4(&message), Some(expected));
        for at in 0..message.len() {
            let mut other = message;
            other[at] ^= 1;
            assert_eq!(TooBig::parse_v4(&other), None, "byte {at}");
        }
        let message = *b"\x02\0\xab\xcd\0\0\x05\x14quoted";
        assert_eq!(TooBig::parse_v6(&message), Some(expected));
        assert_eq!(TooBig::parse_v6(&message[..7]), None);
        assert_eq!(TooBig::parse_v6(&[3; 20]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            crate::fuzzing::arp_icmp(&bytes);
        }
    }
}
