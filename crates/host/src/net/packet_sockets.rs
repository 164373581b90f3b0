//! Packet sockets, which receive copies of frames.
//!
//! Source: linux/packet_diag.h.

use netlink_bindings::traits::{NetlinkRequest, Protocol};

use super::error::{NetError, ask};
use super::inspect::attribute;
use super::sockets::{SOCKETS_MAX, SocketMemory};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketSocket {
    /// Inode number, which identifies its owners.
    pub inode: u32,
    /// Ethertype that it receives; 0 for one that only sends.
    pub protocol: u16,
    /// Interface; 0 for all.
    pub interface: u32,
    /// Size of the ring that it shares with its program; 0 if it has none. Frames that a ring has no room for are
    /// counted by the program alone.
    pub ring_bytes: u64,
    pub memory: SocketMemory,
}

/// Packet sockets of this namespace; none on a kernel without packet_diag.
pub fn packet_sockets() -> Result<Vec<PacketSocket>, NetError> {
    let found = ask("listing packet sockets", |socket| {
        let mut replies = socket.request(&Dump(request()))?;
        let mut sockets = Vec::new();
        while let Some(reply) = replies.recv().transpose()? {
            if sockets.len() < SOCKETS_MAX {
                sockets.extend(reply);
            }
        }
        Ok(sockets)
    });
    match found {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        found => found,
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// PACKET_SHOW_INFO, PACKET_SHOW_RING_CFG and PACKET_SHOW_MEMINFO.
const SHOW: u32 = 0x15;

/// `struct packet_diag_req`.
fn request() -> [u8; 20] {
    let mut request = [0; 20];
    request[0] = libc::AF_PACKET as u8;
    request[8..12].copy_from_slice(&SHOW.to_ne_bytes());
    request
}

struct Dump([u8; 20]);

impl NetlinkRequest for Dump {
    fn protocol(&self) -> Protocol {
        let protonum = libc::NETLINK_SOCK_DIAG as u16;
        Protocol::Raw { protonum, request_type: SOCK_DIAG_BY_FAMILY }
    }

    fn flags(&self) -> u16 {
        libc::NLM_F_DUMP as u16
    }

    fn payload(&self) -> &[u8] {
        &self.0
    }

    type ReplyType<'buf> = Option<PacketSocket>;

    fn decode_reply(buf: &[u8]) -> Self::ReplyType<'_> {
        decode(buf)
    }
}

/// `struct packet_diag_msg` and its attributes; `None` if it is cut.
fn decode(reply: &[u8]) -> Option<PacketSocket> {
    let (header, attributes) = reply.split_first_chunk::<16>()?;
    let word = |bytes: &[u8], number: usize| {
        let bytes = bytes.get(number * 4..number * 4 + 4)?;
        bytes.try_into().ok().map(u32::from_ne_bytes)
    };
    let info = attribute(attributes, 0).unwrap_or_default();
    let ring = attribute(attributes, 2).unwrap_or_default();
    let block_bytes = u64::from(word(ring, 0).unwrap_or(0));
    Some(PacketSocket {
        protocol: u16::from_ne_bytes([header[2], header[3]]),
        inode: word(header, 1)?,
        interface: word(info, 0).unwrap_or(0),
        ring_bytes: block_bytes * u64::from(word(ring, 1).unwrap_or(0)),
        memory: attribute(attributes, 6).map(SocketMemory::of_attribute).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_reply_is_no_socket_and_missing_attributes_are_zero() {
        assert_eq!(decode(&[0; 15]), None);
        let mut reply = [0; 16];
        reply[2..4].copy_from_slice(&3_u16.to_ne_bytes());
        reply[4..8].copy_from_slice(&77_u32.to_ne_bytes());
        let wanted = PacketSocket { inode: 77, protocol: 3, ..PacketSocket::default() };
        assert_eq!(decode(&reply), Some(wanted));
    }
}
