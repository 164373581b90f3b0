//! Echoes: what is sent to the guest, and what its answers say.

use wire::{ethernet, icmp, ipv4, udp};

use super::error::GuestError;
use super::link::{Station, US};

/// UDP port that sends back what it gets (RFC 862).
pub const ECHO_PORT: u16 = 7;
/// Our UDP port.
const OUR_PORT: u16 = 40_000;
/// Identifier of our ICMP echoes.
const PING_ID: u16 = 0x5750;
const IP_AT: usize = ethernet::HEADER_BYTES;
const MESSAGE_AT: usize = IP_AT + ipv4::HEADER_BYTES_MIN;
/// Both kinds of echo have a header of eight bytes.
const PAYLOAD_AT: usize = MESSAGE_AT + icmp::HEADER_BYTES;
/// Bytes of payload that a UDP echo has at least, for its number.
pub const UDP_BYTES_MIN: usize = 4;
/// Bytes of payload that fit into a frame.
pub const BYTES_MAX: usize = super::link::FRAME_BYTES_MAX - PAYLOAD_AT;

/// Which echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ICMP echo request and reply; numbers are 16 bits wide.
    Icmp,
    /// A datagram to port 7 and back.
    Udp,
}

/// A frame that is sent again and again with another number.
#[derive(Debug, Clone)]
pub struct Echo {
    kind: Kind,
    to: Station,
    frame: Vec<u8>,
}

impl Echo {
    /// A frame to a station, with number 0.
    ///
    /// - `payload_bytes`: at most [`BYTES_MAX`]; of a UDP echo [`UDP_BYTES_MIN`] at least.
    pub fn new(kind: Kind, to: Station, payload_bytes: usize) -> Result<Echo, GuestError> {
        let payload_bytes = match kind {
            Kind::Icmp => payload_bytes,
            Kind::Udp => payload_bytes.max(UDP_BYTES_MIN),
        };
        let mut frame = vec![0; PAYLOAD_AT + payload_bytes];
        for (at, byte) in frame[PAYLOAD_AT..].iter_mut().enumerate() {
            *byte = at as u8;
        }
        let protocol = match kind {
            Kind::Icmp => ipv4::PROTOCOL_ICMP,
            Kind::Udp => ipv4::PROTOCOL_UDP,
        };
        write_headers(&mut frame, &to, protocol)?;
        let mut echo = Echo { kind, to, frame };
        echo.set_number(0)?;
        Ok(echo)
    }

    /// The frame as it is to be sent.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Gives it another number; an ICMP echo takes the low 16 bits of it.
    pub fn set_number(&mut self, number: u32) -> Result<(), GuestError> {
        let message = &mut self.frame[MESSAGE_AT..];
        match self.kind {
            Kind::Icmp => {
                let (kind, sequence) = (icmp::Kind::EchoRequest, number as u16);
                icmp::Repr { kind, id: PING_ID, sequence }.write(message)?;
            }
            Kind::Udp => {
                let payload_bytes = message.len() - udp::HEADER_BYTES;
                message[udp::HEADER_BYTES..][..UDP_BYTES_MIN]
                    .copy_from_slice(&number.to_be_bytes());
                let header = udp::Repr { src_port: OUR_PORT, dst_port: ECHO_PORT, payload_bytes };
                header.write(message, US.ip, self.to.ip)?;
            }
        }
        Ok(())
    }

    /// Whether `frame` answers the echo of this number: right in all checksums, as long as the
    /// question, and with its payload.
    pub fn is_answered_by(&self, frame: &[u8], number: u32) -> bool {
        let (answered, payload) = match (self.kind, icmp_payload(frame), udp_payload(frame)) {
            (Kind::Icmp, Some((sequence, payload)), _) => (sequence == number as u16, payload),
            (Kind::Udp, _, Some((ECHO_PORT, payload))) => {
                (payload.get(..UDP_BYTES_MIN) == Some(&number.to_be_bytes()), payload)
            }
            _ => return false,
        };
        let skipped = if self.kind == Kind::Udp { UDP_BYTES_MIN } else { 0 };
        answered && payload.get(skipped..) == self.frame.get(PAYLOAD_AT + skipped..)
    }
}

fn write_headers(frame: &mut [u8], to: &Station, protocol: u8) -> Result<(), GuestError> {
    let ethertype = ethernet::TYPE_IPV4;
    ethernet::Repr { dst: to.mac, src: US.mac, ethertype }.write(frame)?;
    let payload_bytes = frame.len() - MESSAGE_AT;
    let packet = ipv4::Repr { src: US.ip, dst: to.ip, protocol, ttl: ipv4::TTL, payload_bytes };
    Ok(packet.write(&mut frame[IP_AT..])?)
}

/// A datagram to a port of a station.
pub(super) fn udp_frame(to: &Station, port: u16, payload: &[u8]) -> Result<Vec<u8>, GuestError> {
    let mut frame = vec![0; PAYLOAD_AT];
    frame.extend_from_slice(payload);
    write_headers(&mut frame, to, ipv4::PROTOCOL_UDP)?;
    let header = udp::Repr { src_port: OUR_PORT, dst_port: port, payload_bytes: payload.len() };
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

    const THEM: Station = Station { mac: [2, 0, 0, 0, 0, 2], ip: Ipv4Addr::new(10, 0, 0, 2) };

    /// What a right answer looks like.
    fn answer(echo: &Echo) -> Vec<u8> {
        let mut frame = echo.frame().to_vec();
        match echo.kind {
            Kind::Icmp => {
                let message = icmp::Packet::parse(&frame[MESSAGE_AT..]).unwrap();
                let reply = icmp::Repr { kind: icmp::Kind::EchoReply, ..icmp::Repr::of(&message) };
                reply.write(&mut frame[MESSAGE_AT..]).unwrap();
            }
            Kind::Udp => {
                let payload_bytes = frame.len() - PAYLOAD_AT;
                let header = udp::Repr { src_port: ECHO_PORT, dst_port: OUR_PORT, payload_bytes };
                header.write(&mut frame[MESSAGE_AT..], US.ip, THEM.ip).unwrap();
            }
        }
        frame
    }

    #[test]
    fn only_the_whole_answer_to_the_right_number_is_one() {
        for (kind, bytes) in [(Kind::Icmp, 0), (Kind::Icmp, 56), (Kind::Udp, 4), (Kind::Udp, 1472)]
        {
            let mut echo = Echo::new(kind, THEM, bytes).unwrap();
            echo.set_number(70_000).unwrap();
            let right = answer(&echo);
            assert!(echo.is_answered_by(&right, 70_000), "{kind:?} {bytes}");
            assert!(!echo.is_answered_by(&right, 70_001), "another number");
            assert!(!echo.is_answered_by(echo.frame(), 70_000), "the question");
            let mut bent = right.clone();
            *bent.last_mut().unwrap() ^= 1;
            assert!(!echo.is_answered_by(&bent, 70_000), "a wrong checksum");
            assert!(!echo.is_answered_by(&right[..right.len() - 1], 70_000), "cut off");
            let longer = Echo::new(kind, THEM, bytes + 2).unwrap();
            assert!(!longer.is_answered_by(&right, 70_000), "another's payload");
        }
    }

    #[test]
    fn too_long_a_payload_is_an_error_and_too_short_a_one_is_filled() {
        assert!(Echo::new(Kind::Icmp, THEM, 70_000).is_err());
        assert_eq!(Echo::new(Kind::Udp, THEM, 0).unwrap().frame().len(), PAYLOAD_AT + 4);
        assert_eq!(BYTES_MAX, 1472);
    }
}
