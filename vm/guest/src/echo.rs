//! Echo requests to the guest, and checks of its answers.

use wire::{ethernet, icmp, ipv4, udp};

use super::endpoint::{Endpoint, FRAME_BYTES_MAX, US};
use super::error::GuestError;

/// UDP echo port (RFC 862).
pub const ECHO_PORT: u16 = 7;
const NEAR_PORT: u16 = 40_000;
/// Identifier of ICMP echoes.
const PING_ID: u16 = 0x5750;
const IP_AT: usize = ethernet::HEADER_BYTES;
const MESSAGE_AT: usize = IP_AT + ipv4::HEADER_BYTES_MIN;
/// Both kinds of echo have a header of eight bytes.
const PAYLOAD_AT: usize = MESSAGE_AT + icmp::HEADER_BYTES;
/// Minimum payload of a UDP echo, for its number.
pub const UDP_BYTES_MIN: usize = 4;
/// Maximum payload of a frame.
pub const BYTES_MAX: usize = FRAME_BYTES_MAX - PAYLOAD_AT;

/// Protocol of an echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EchoKind {
    /// Echo request and reply; numbers have 16 bits.
    Icmp,
    /// A datagram to port 7 and back.
    Udp,
}

/// An echo request that is sent repeatedly with a new number.
#[derive(Debug, Clone)]
pub struct Echo {
    kind: EchoKind,
    to: Endpoint,
    frame: Vec<u8>,
}

impl Echo {
    /// Creates a request with number 0.
    ///
    /// - `payload_bytes`: at most [`BYTES_MAX`]; raised to [`UDP_BYTES_MIN`] for UDP.
    pub fn new(kind: EchoKind, to: Endpoint, payload_bytes: usize) -> Result<Echo, GuestError> {
        let payload_bytes = match kind {
            EchoKind::Icmp => payload_bytes,
            EchoKind::Udp => payload_bytes.max(UDP_BYTES_MIN),
        };
        let mut frame = vec![0; PAYLOAD_AT + payload_bytes];
        for (at, byte) in frame[PAYLOAD_AT..].iter_mut().enumerate() {
            *byte = at as u8;
        }
        let protocol = match kind {
            EchoKind::Icmp => ipv4::PROTOCOL_ICMP,
            EchoKind::Udp => ipv4::PROTOCOL_UDP,
        };
        write_headers(&mut frame, &to, protocol)?;
        let mut echo = Echo { kind, to, frame };
        echo.set_number(0)?;
        Ok(echo)
    }

    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Sets the number; an ICMP echo uses its low 16 bits.
    pub fn set_number(&mut self, number: u32) -> Result<(), GuestError> {
        let message = &mut self.frame[MESSAGE_AT..];
        match self.kind {
            EchoKind::Icmp => {
                let (kind, sequence) = (icmp::Kind::EchoRequest, number as u16);
                icmp::Repr { kind, id: PING_ID, sequence }.write(message)?;
            }
            EchoKind::Udp => {
                let payload_bytes = message.len() - udp::HEADER_BYTES;
                message[udp::HEADER_BYTES..][..UDP_BYTES_MIN]
                    .copy_from_slice(&number.to_be_bytes());
                let header = udp::Repr { src_port: NEAR_PORT, dst_port: ECHO_PORT, payload_bytes };
                header.write(message, US.ip, self.to.ip)?;
            }
        }
        Ok(())
    }

    /// True if `frame` answers the echo of this number, with valid checksums and the same length and
    /// payload.
    pub fn is_answered_by(&self, frame: &[u8], number: u32) -> bool {
        let (answered, payload) = match (self.kind, icmp_payload(frame), udp_payload(frame)) {
            (EchoKind::Icmp, Some((sequence, payload)), _) => (sequence == number as u16, payload),
            (EchoKind::Udp, _, Some((ECHO_PORT, payload))) => {
                (payload.get(..UDP_BYTES_MIN) == Some(&number.to_be_bytes()), payload)
            }
            _ => return false,
        };
        let skipped = if self.kind == EchoKind::Udp { UDP_BYTES_MIN } else { 0 };
        answered && payload.get(skipped..) == self.frame.get(PAYLOAD_AT + skipped..)
    }
}

fn write_headers(frame: &mut [u8], to: &Endpoint, protocol: u8) -> Result<(), GuestError> {
    let ethertype = ethernet::TYPE_IPV4;
    ethernet::Repr { dst: to.mac, src: US.mac, ethertype }.write(frame)?;
    let payload_bytes = frame.len() - MESSAGE_AT;
    let packet = ipv4::Repr { src: US.ip, dst: to.ip, protocol, ttl: ipv4::TTL, payload_bytes };
    Ok(packet.write(&mut frame[IP_AT..])?)
}

/// Builds a datagram to a port of the peer.
pub(super) fn udp_frame(to: &Endpoint, port: u16, payload: &[u8]) -> Result<Vec<u8>, GuestError> {
    let mut frame = vec![0; PAYLOAD_AT];
    frame.extend_from_slice(payload);
    write_headers(&mut frame, to, ipv4::PROTOCOL_UDP)?;
    let header = udp::Repr { src_port: NEAR_PORT, dst_port: port, payload_bytes: payload.len() };
    header.write(&mut frame[MESSAGE_AT..], US.ip, to.ip)?;
    Ok(frame)
}

/// Source port and payload of a UDP frame whose checksums are right.
pub(super) fn udp_payload(frame: &[u8]) -> Option<(u16, &[u8])> {
    let packet = ip_packet(frame, ipv4::PROTOCOL_UDP)?;
    let datagram = udp::Packet::parse(packet.payload()).ok()?;
    datagram.verify_checksum(packet.header().src(), packet.header().dst()).ok()?;
    Some((datagram.header().src_port(), datagram.payload()))
}

/// The number in the answer to a UDP echo.
pub(super) fn udp_number(frame: &[u8]) -> Option<u32> {
    let (ECHO_PORT, payload) = udp_payload(frame)? else { return None };
    Some(u32::from_be_bytes(*payload.first_chunk()?))
}

/// Sequence number and payload of an answer to our ICMP echo whose checksums are right.
fn icmp_payload(frame: &[u8]) -> Option<(u16, &[u8])> {
    let packet = ip_packet(frame, ipv4::PROTOCOL_ICMP)?;
    let message = icmp::Packet::parse(packet.payload()).ok()?;
    let ours = message.kind() == icmp::Kind::EchoReply && message.id() == PING_ID;
    ours.then(|| (message.sequence(), message.payload()))
}

fn ip_packet(frame: &[u8], protocol: u8) -> Option<ipv4::Packet<'_>> {
    let ethernet = ethernet::Packet::parse(frame).ok()?;
    let packet = ipv4::Packet::parse(ethernet.payload()).ok()?;
    packet.verify_checksum().ok()?;
    packet.header().expect_whole(protocol).ok()?;
    Some(packet)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const THEM: Endpoint = Endpoint { mac: [2, 0, 0, 0, 0, 2], ip: Ipv4Addr::new(10, 0, 0, 2) };

    /// The valid answer to an echo.
    fn answer(echo: &Echo) -> Vec<u8> {
        let mut frame = echo.frame().to_vec();
        match echo.kind {
            EchoKind::Icmp => {
                let message = icmp::Packet::parse(&frame[MESSAGE_AT..]).unwrap();
                let reply = icmp::Repr { kind: icmp::Kind::EchoReply, ..icmp::Repr::of(&message) };
                reply.write(&mut frame[MESSAGE_AT..]).unwrap();
            }
            EchoKind::Udp => {
                let payload_bytes = frame.len() - PAYLOAD_AT;
                let header = udp::Repr { src_port: ECHO_PORT, dst_port: NEAR_PORT, payload_bytes };
                header.write(&mut frame[MESSAGE_AT..], US.ip, THEM.ip).unwrap();
            }
        }
        frame
    }

    #[test]
    fn only_a_complete_answer_with_the_right_number_counts() {
        for (kind, bytes) in
            [(EchoKind::Icmp, 0), (EchoKind::Icmp, 56), (EchoKind::Udp, 4), (EchoKind::Udp, 1472)]
        {
            let mut echo = Echo::new(kind, THEM, bytes).unwrap();
            echo.set_number(70_000).unwrap();
            let right = answer(&echo);
            assert!(echo.is_answered_by(&right, 70_000), "{kind:?} {bytes}");
            assert!(!echo.is_answered_by(&right, 70_001), "another number");
            assert!(!echo.is_answered_by(echo.frame(), 70_000), "the request");
            let mut bent = right.clone();
            *bent.last_mut().unwrap() ^= 1;
            assert!(!echo.is_answered_by(&bent, 70_000), "a wrong checksum");
            assert!(!echo.is_answered_by(&right[..right.len() - 1], 70_000), "cut off");
            let longer = Echo::new(kind, THEM, bytes + 2).unwrap();
            assert!(!longer.is_answered_by(&right, 70_000), "a different payload");
        }
    }

    #[test]
    fn overlong_payload_is_an_error_and_a_short_one_is_padded() {
        assert!(Echo::new(EchoKind::Icmp, THEM, 70_000).is_err());
        assert_eq!(Echo::new(EchoKind::Udp, THEM, 0).unwrap().frame().len(), PAYLOAD_AT + 4);
        assert_eq!(BYTES_MAX, 1472);
    }
}
