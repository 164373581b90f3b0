//! Answers to ARP requests for the host's address, ICMP echo requests and UDP echoes.
//!
//! Every answer is written in place, over the request. Formats are those of `wire`.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

use core::net::Ipv4Addr;
use core::ops::Range;

use wire::{FrameError, arp, checksum, ethernet, icmp, ipv4, udp};

/// UDP echo port (RFC 862).
pub const ECHO_PORT: u16 = 7;
/// Offset of the payload in a datagram written here.
pub const UDP_PAYLOAD_OFFSET: usize =
    ethernet::HEADER_BYTES + ipv4::HEADER_BYTES_MIN + udp::HEADER_BYTES;
pub const ARP_FRAME_BYTES: usize = ethernet::HEADER_BYTES + arp::PACKET_BYTES;

const IP_AT: usize = ethernet::HEADER_BYTES;
const TTL_AT: usize = IP_AT + 8;

/// Addresses of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub mac: [u8; 6],
    pub ip: Ipv4Addr,
}

/// UDP socket of another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub mac: [u8; 6],
    pub ip: Ipv4Addr,
    pub port: u16,
}

/// Protocol of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ARP reply.
    Arp,
    /// ICMP echo reply.
    Icmp,
    /// UDP echo.
    Udp,
}

/// Result of handling a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The frame now holds the answer: send its first `len_bytes`.
    Answer { kind: Kind, len_bytes: usize },
    /// A datagram to another port of this host; the frame is unchanged.
    Datagram {
        from: Peer,
        /// Destination port.
        port: u16,
        /// Range of the payload in the frame.
        payload: Range<usize>,
    },
    /// Valid, but not for this host.
    Other,
    /// Invalid; the frame is unchanged.
    Bad(FrameError),
}

/// Answers a frame in place, after checking all lengths and checksums.
pub fn answer(frame: &mut [u8], identity: &Identity) -> Outcome {
    try_answer(frame, identity).unwrap_or_else(Outcome::Bad)
}

fn try_answer(frame: &mut [u8], identity: &Identity) -> Result<Outcome, FrameError> {
    let ethernet = ethernet::Packet::parse(frame)?;
    let for_us = ethernet.dst() == identity.mac;
    if ethernet.vlan().is_some() || !(for_us || ethernet.dst() == ethernet::BROADCAST) {
        return Ok(Outcome::Other);
    }
    match ethernet.ethertype() {
        ethernet::TYPE_ARP => answer_arp(frame, identity),
        ethernet::TYPE_IPV4 if for_us => answer_ipv4(frame, identity),
        _ => Ok(Outcome::Other),
    }
}

fn answer_arp(frame: &mut [u8], identity: &Identity) -> Result<Outcome, FrameError> {
    let question = arp::Repr::of(&arp::Packet::parse(&frame[IP_AT..])?);
    if question.operation != arp::Operation::Request || question.target_ip != identity.ip {
        return Ok(Outcome::Other);
    }
    write_arp(frame, question.sender_mac, &question.reply_from(identity.mac))?;
    Ok(Outcome::Answer { kind: Kind::Arp, len_bytes: ARP_FRAME_BYTES })
}

fn answer_ipv4(frame: &mut [u8], identity: &Identity) -> Result<Outcome, FrameError> {
    let ethernet_src = ethernet::Packet::parse(frame)?.src();
    let packet = ipv4::Packet::parse(&frame[IP_AT..])?;
    packet.verify_checksum()?;
    let header = packet.header();
    if header.dst() != identity.ip {
        return Ok(Outcome::Other);
    }
    let (src, protocol) = (header.src(), header.protocol());
    let payload_at = IP_AT + header.header_bytes();
    let end = payload_at + header.payload_bytes();
    match protocol {
        ipv4::PROTOCOL_ICMP => {
            header.expect_whole(protocol)?;
            let message = icmp::Packet::parse(packet.payload())?;
            if message.kind() != icmp::Kind::EchoRequest {
                return Ok(Outcome::Other);
            }
            // The checksum was verified and one word changes: update it instead of summing again.
            frame[payload_at] = icmp::Kind::EchoReply as u8;
            update(frame, payload_at + icmp::CHECKSUM_OFFSET, 0x0800, 0x0000);
            turn_round(frame);
            Ok(Outcome::Answer { kind: Kind::Icmp, len_bytes: end })
        }
        ipv4::PROTOCOL_UDP => {
            header.expect_whole(protocol)?;
            let datagram = udp::Packet::parse(packet.payload())?;
            datagram.verify_checksum(src, identity.ip)?;
            let (from, to) = (datagram.header().src_port(), datagram.header().dst_port());
            if to != ECHO_PORT {
                let payload = payload_at + udp::HEADER_BYTES;
                return Ok(Outcome::Datagram {
                    from: Peer { mac: ethernet_src, ip: src, port: from },
                    port: to,
                    payload: payload..payload + datagram.payload().len(),
                });
            }
            // Two echo ports would answer each other without end.
            if from == ECHO_PORT {
                return Ok(Outcome::Other);
            }
            // A checksum does not depend on the order of its words, so it stays valid.
            swap::<2>(frame, payload_at);
            turn_round(frame);
            Ok(Outcome::Answer { kind: Kind::Udp, len_bytes: end })
        }
        _ => Ok(Outcome::Other),
    }
}

/// Swaps both pairs of addresses and resets the time to live; the header checksum stays as
/// correct as it was.
fn turn_round(frame: &mut [u8]) {
    swap::<6>(frame, ethernet::DST_OFFSET);
    swap::<4>(frame, IP_AT + ipv4::SRC_OFFSET);
    let word = |frame: &[u8]| u16::from_be_bytes([frame[TTL_AT], frame[TTL_AT + 1]]);
    let old = word(frame);
    frame[TTL_AT] = ipv4::TTL;
    let new = word(frame);
    update(frame, IP_AT + ipv4::CHECKSUM_OFFSET, old, new);
}

/// Swaps two adjacent fields of `N` bytes each.
fn swap<const N: usize>(bytes: &mut [u8], at: usize) {
    if let Some((first, rest)) = bytes[at..].split_first_chunk_mut::<N>()
        && let Some(second) = rest.first_chunk_mut::<N>()
    {
        core::mem::swap(first, second);
    }
}

/// Answers an ICMP echo request in place by the shortest path: only headers without options, and
/// no checksum over unchanged bytes. Returns the length of the answer, or `None` for any other
/// frame, which is left unchanged.
///
/// The checksum of the message is not verified: if it was wrong it stays wrong by the same
/// difference (RFC 1624), and the sender detects it.
/// asked will notice (RFC 1624 keeps the difference).
pub fn echo_in_place(frame: &mut [u8], identity: &Identity) -> Option<usize> {
    const ICMP_AT: usize = IP_AT + ipv4::HEADER_BYTES_MIN;
    let headers = frame.first_chunk::<{ ICMP_AT + icmp::HEADER_BYTES }>()?;
    let word = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    let is_echo = headers[..6] == identity.mac
        && headers[12..14] == ethernet::TYPE_IPV4.to_be_bytes()
        && headers[IP_AT] == 0x45
        && word(IP_AT + ipv4::FRAGMENT_OFFSET) & 0x3fff == 0
        && headers[IP_AT + ipv4::PROTOCOL_OFFSET] == ipv4::PROTOCOL_ICMP
        && headers[IP_AT + ipv4::DST_OFFSET..][..4] == identity.ip.octets()
        && headers[ICMP_AT] == icmp::Kind::EchoRequest as u8
        && headers[ICMP_AT + 1] == 0
        && checksum::sum(&headers[IP_AT..ICMP_AT]) == 0xffff;
    let total = usize::from(word(IP_AT + ipv4::TOTAL_OFFSET));
    let end = IP_AT + total;
    if !is_echo || end > frame.len() || total < ipv4::HEADER_BYTES_MIN + icmp::HEADER_BYTES {
        return None;
    }
    turn_round(frame);
    frame[ICMP_AT] = icmp::Kind::EchoReply as u8;
    update(frame, ICMP_AT + icmp::CHECKSUM_OFFSET, 0x0800, 0x0000);
    Some(end)
}

fn update(frame: &mut [u8], at: usize, old: u16, new: u16) {
    let checksum = checksum::update(u16::from_be_bytes([frame[at], frame[at + 1]]), old, new);
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

fn write_arp(frame: &mut [u8], dst: [u8; 6], packet: &arp::Repr) -> Result<(), FrameError> {
    let ethernet = ethernet::Repr { dst, src: packet.sender_mac, ethertype: ethernet::TYPE_ARP };
    ethernet.write(frame)?;
    packet.write(&mut frame[IP_AT..])
}

/// Writes a gratuitous ARP announcement (RFC 5227, section 3).
pub fn write_announcement(frame: &mut [u8], identity: &Identity) -> Result<usize, FrameError> {
    let packet = arp::Repr {
        operation: arp::Operation::Request,
        sender_mac: identity.mac,
        sender_ip: identity.ip,
        target_mac: [0; 6],
        target_ip: identity.ip,
    };
    write_arp(frame, ethernet::BROADCAST, &packet)?;
    Ok(ARP_FRAME_BYTES)
}

/// Writes the headers of a datagram to `peer` around a payload already at
/// [`UDP_PAYLOAD_OFFSET`]. Returns the length of the frame.
pub fn write_datagram(
    frame: &mut [u8],
    identity: &Identity,
    port: u16,
    peer: &Peer,
    payload_bytes: usize,
) -> Result<usize, FrameError> {
    let ethertype = ethernet::TYPE_IPV4;
    ethernet::Repr { dst: peer.mac, src: identity.mac, ethertype }.write(frame)?;
    let packet = ipv4::Repr {
        src: identity.ip,
        dst: peer.ip,
        protocol: ipv4::PROTOCOL_UDP,
        ttl: ipv4::TTL,
        payload_bytes: udp::HEADER_BYTES + payload_bytes,
    };
    packet.write(&mut frame[IP_AT..])?;
    let datagram = udp::Repr { src_port: port, dst_port: peer.port, payload_bytes };
    datagram.write(&mut frame[IP_AT + ipv4::HEADER_BYTES_MIN..], identity.ip, peer.ip)?;
    Ok(UDP_PAYLOAD_OFFSET + payload_bytes)
}

#[cfg(test)]
mod tests;
