//! ARP for IPv4 over Ethernet: requests and replies.
//!
//! Source: RFC 826.

use core::net::Ipv4Addr;

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::FrameError;
use crate::error::front_mut;

/// Bytes of a packet.
pub const PACKET_BYTES: usize = 28;

/// Hardware type 1 (Ethernet), protocol IPv4, address lengths 6 and 4.
const HARDWARE: u16 = 1;
const PROTOCOL: u16 = 0x0800;
const LENGTHS: u16 = 0x0604;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    hardware: U16,
    protocol: U16,
    lengths: U16,
    operation: U16,
    sender_mac: [u8; 6],
    sender_ip: [u8; 4],
    target_mac: [u8; 6],
    target_ip: [u8; 4],
}

/// Operation of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Operation {
    /// Request for the MAC address of the target.
    Request = 1,
    /// Reply with the MAC address of the sender.
    Reply = 2,
}

/// View of a checked packet.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    raw: &'a Raw,
    operation: Operation,
}

impl<'a> Packet<'a> {
    /// Checks that this is a request or a reply about IPv4 over Ethernet.
    pub fn parse(bytes: &'a [u8]) -> Result<Packet<'a>, FrameError> {
        let (raw, _) = Raw::ref_from_prefix(bytes).map_err(|_| FrameError::Short {
            what: "the ARP packet",
            at: 0,
            needed_bytes: PACKET_BYTES,
            had_bytes: bytes.len(),
        })?;
        expect("ARP hardware type", 0, HARDWARE, raw.hardware)?;
        expect("ARP protocol type", 2, PROTOCOL, raw.protocol)?;
        expect("ARP address lengths", 4, LENGTHS, raw.lengths)?;
        let operation = match raw.operation.get() {
            1 => Operation::Request,
            2 => Operation::Reply,
            found => {
                return Err(FrameError::Other {
                    field: "ARP operation",
                    at: 6,
                    expected: Operation::Request as u32,
                    found: found.into(),
                });
            }
        };
        Ok(Packet { raw, operation })
    }

    /// Operation of the packet.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Sender's MAC address.
    pub fn sender_mac(&self) -> [u8; 6] {
        self.raw.sender_mac
    }

    /// Sender's address.
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.raw.sender_ip)
    }

    /// Target's MAC address; undefined in a request.
    pub fn target_mac(&self) -> [u8; 6] {
        self.raw.target_mac
    }

    /// Target's address.
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.raw.target_ip)
    }
}

fn expect(field: &'static str, at: usize, expected: u16, found: U16) -> Result<(), FrameError> {
    if found.get() == expected {
        return Ok(());
    }
    Err(FrameError::Other { field, at, expected: expected.into(), found: found.get().into() })
}

/// A packet by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Operation of the packet.
    pub operation: Operation,
    /// Sender's MAC address.
    pub sender_mac: [u8; 6],
    /// Sender's address.
    pub sender_ip: Ipv4Addr,
    /// Target's MAC address; zeros in a request.
    pub target_mac: [u8; 6],
    /// Target's address.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Decodes a packet.
    pub fn of(packet: &Packet<'_>) -> Repr {
        Repr {
            operation: packet.operation,
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        }
    }

    /// Reply to this request from `mac`, the owner of the target address.
    pub fn reply_from(&self, mac: [u8; 6]) -> Repr {
        Repr {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Writes the packet to the first [`PACKET_BYTES`]. Errors: the buffer is too short.
    pub fn write(&self, bytes: &mut [u8]) -> Result<(), FrameError> {
        let raw = Raw {
            hardware: U16::new(HARDWARE),
            protocol: U16::new(PROTOCOL),
            lengths: U16::new(LENGTHS),
            operation: U16::new(self.operation as u16),
            sender_mac: self.sender_mac,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac,
            target_ip: self.target_ip.octets(),
        };
        front_mut(bytes, PACKET_BYTES, "the ARP packet")?.copy_from_slice(raw.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Repr = Repr {
        operation: Operation::Request,
        sender_mac: [2, 0, 0, 0, 0, 1],
        sender_ip: Ipv4Addr::new(10, 0, 0, 1),
        target_mac: [0; 6],
        target_ip: Ipv4Addr::new(10, 0, 0, 2),
    };
    #[rustfmt::skip]
    const BYTES: [u8; 28] = [
        0, 1, 8, 0, 6, 4, 0, 1,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];

    #[test]
    fn known_request_is_written_and_read() {
        let mut bytes = [0xcc; 28];
        REQUEST.write(&mut bytes).expect("it fits");
        assert_eq!(bytes, BYTES);
        assert_eq!(Repr::of(&Packet::parse(&bytes).expect("it is whole")), REQUEST);
    }

    #[test]
    fn reply_swaps_sender_and_target() {
        let reply = REQUEST.reply_from([2, 0, 0, 0, 0, 2]);
        let expected = Repr {
            operation: Operation::Reply,
            sender_mac: [2, 0, 0, 0, 0, 2],
            sender_ip: REQUEST.target_ip,
            target_mac: REQUEST.sender_mac,
            target_ip: REQUEST.sender_ip,
        };
        assert_eq!(reply, expected);
        let mut bytes = [0; 28];
        reply.write(&mut bytes).expect("it fits");
        assert_eq!(Repr::of(&Packet::parse(&bytes).expect("it is whole")), expected);
    }

    #[test]
    fn other_hardware_protocol_lengths_and_operations_are_refused() {
        for at in [0, 2, 4, 6] {
            let mut bytes = BYTES;
            bytes[at + 1] ^= 0x40;
            let error = Packet::parse(&bytes).err().expect("it is modified");
            assert!(matches!(error, FrameError::Other { at: found, .. } if found == at), "{at}");
        }
        assert!(Packet::parse(&BYTES[..27]).is_err());
        assert!(REQUEST.write(&mut [0; 27]).is_err());
    }
}
