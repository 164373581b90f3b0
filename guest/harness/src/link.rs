//! The wire between us and the firmware, one datagram a frame.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use net::{ECHO_PORT, Identity, Peer, UDP_PAYLOAD_OFFSET};
use observe::dump::{Answer, PORT, Request, What};
use observe::{Entry, Snapshot};
use wire::{arp, ethernet, icmp, ipv4, udp};

/// Longest frame.
pub const FRAME_BYTES_MAX: usize = 1514;
/// Who we are.
pub const US: Identity = Identity { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 0, 0, 1) };
/// Our UDP port.
pub const OUR_PORT: u16 = 40_000;
/// How long an answer may take.
pub const ANSWER_MAX: Duration = Duration::from_secs(2);
const PING_ID: u16 = 0x5750;

/// Our end.
pub struct Link {
    socket: UnixDatagram,
    card: PathBuf,
    spinning: Cell<bool>,
}

impl Link {
    pub(crate) fn new(socket: UnixDatagram, card: PathBuf) -> Link {
        Link { socket, card, spinning: Cell::new(false) }
    }

    /// Another handle, for another thread.
    pub fn try_clone(&self) -> Result<Link> {
        let socket = self.socket.try_clone().context("cloning the socket")?;
        Ok(Link { socket, card: self.card.clone(), spinning: self.spinning.clone() })
    }

    /// Waits a moment for the firmware's announcement; when it came, connects.
    pub(crate) fn announcement(&self) -> Result<Option<Instant>> {
        self.socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let mut frame = [0; FRAME_BYTES_MAX];
        let Some(len) = self.receive(&mut frame)? else { return Ok(None) };
        let now = Instant::now();
        let ethernet = ethernet::Packet::parse(&frame[..len])?;
        if ethernet.ethertype() != ethernet::TYPE_ARP {
            bail!("the first frame is no announcement");
        }
        self.socket.connect(&self.card).context("connecting to the card")?;
        self.socket.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Some(now))
    }

    /// How long [`receive`](Self::receive) waits.
    pub fn set_patience(&self, patience: Duration) -> Result<()> {
        Ok(self.socket.set_read_timeout(Some(patience))?)
    }

    /// Has [`receive`](Self::receive) look again and again instead of sleeping.
    pub fn set_spinning(&self, spinning: bool) -> Result<()> {
        self.spinning.set(spinning);
        Ok(self.socket.set_nonblocking(spinning)?)
    }

    /// Sends a frame; waits as long as the card takes no more.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        self.socket.send(frame).context("sending a frame")?;
        Ok(())
    }

    /// The next frame's length; `None` when none came in time.
    pub fn receive(&self, frame: &mut [u8]) -> Result<Option<usize>> {
        if self.spinning.get() {
            let end = Instant::now() + ANSWER_MAX;
            while Instant::now() < end {
                match self.socket.recv(frame) {
                    Ok(len) => return Ok(Some(len)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).context("receiving a frame"),
                }
            }
            return Ok(None);
        }
        match self.socket.recv(frame) {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) => Err(error).context("receiving a frame"),
        }
    }

    /// Asks who has the address; returns its MAC address.
    pub fn resolve(&self, ip: Ipv4Addr) -> Result<Identity> {
        let mut frame = [0; 60];
        let request = arp::Repr {
            operation: arp::Operation::Request,
            sender_mac: US.mac,
            sender_ip: US.ip,
            target_mac: [0; 6],
            target_ip: ip,
        };
        let (dst, ethertype) = (ethernet::BROADCAST, ethernet::TYPE_ARP);
        ethernet::Repr { dst, src: US.mac, ethertype }.write(&mut frame)?;
        request.write(&mut frame[ethernet::HEADER_BYTES..])?;
        self.send(&frame)?;
        let mut answer = [0; FRAME_BYTES_MAX];
        while let Some(len) = self.receive(&mut answer)? {
            let packet = ethernet::Packet::parse(&answer[..len])?;
            if packet.ethertype() == ethernet::TYPE_ARP {
                let reply = arp::Packet::parse(packet.payload())?;
                if reply.operation() == arp::Operation::Reply && reply.sender_ip() == ip {
                    return Ok(Identity { mac: reply.sender_mac(), ip });
                }
            }
        }
        bail!("nobody answers for {ip}")
    }

    /// The counters.
    pub fn counters(&self, station: &Identity, token: u16) -> Result<Snapshot> {
        self.ask(station, Request { what: What::Counters, token }, |answer| answer.counters())
    }

    /// The trace ring, oldest first.
    pub fn trace(&self, station: &Identity, token: u16) -> Result<Vec<Entry>> {
        let (mut entries, mut seen) = (Vec::new(), 0);
        self.ask(station, Request { what: What::Trace, token }, |answer| {
            entries.extend(answer.entries());
            seen += 1;
            (seen == answer.parts).then_some(())
        })?;
        Ok(entries)
    }

    fn ask<T>(
        &self,
        station: &Identity,
        request: Request,
        mut take: impl FnMut(&Answer<'_>) -> Option<T>,
    ) -> Result<T> {
        let mut frame = udp_frame(station, PORT, &request.bytes())?;
        self.send(&frame)?;
        frame.resize(FRAME_BYTES_MAX, 0);
        while let Some(len) = self.receive(&mut frame)? {
            let Some((header, payload)) = udp_payload(&frame[..len]) else { continue };
            if header != PORT {
                continue;
            }
            let answer = Answer::parse(payload)?;
            if answer.request == request
                && let Some(taken) = take(&answer)
            {
                return Ok(taken);
            }
        }
        bail!("the firmware does not answer {request:?}")
    }
}

/// Source port and payload of a UDP frame, both checksums right.
pub fn udp_payload(frame: &[u8]) -> Option<(u16, &[u8])> {
    let ethernet = ethernet::Packet::parse(frame).ok()?;
    let packet = ipv4::Packet::parse(ethernet.payload()).ok()?;
    packet.verify_checksum().ok()?;
    packet.header().expect_whole(ipv4::PROTOCOL_UDP).ok()?;
    let datagram = udp::Packet::parse(packet.payload()).ok()?;
    datagram.verify_checksum(packet.header().src(), packet.header().dst()).ok()?;
    Some((datagram.header().src_port(), datagram.payload()))
}

/// A datagram to a port of the station.
pub fn udp_frame(station: &Identity, port: u16, payload: &[u8]) -> Result<Vec<u8>> {
    let mut frame = vec![0; UDP_PAYLOAD_OFFSET];
    frame.extend_from_slice(payload);
    let peer = Peer { mac: station.mac, ip: station.ip, port };
    net::write_datagram(&mut frame, &US, OUR_PORT, &peer, payload.len())?;
    Ok(frame)
}

/// A datagram to the station's echo port, with a number in it.
pub fn echo_frame(station: &Identity, number: u32, payload_bytes: usize) -> Result<Vec<u8>> {
    let mut payload = vec![0x5a; payload_bytes.max(4)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    udp_frame(station, ECHO_PORT, &payload)
}

/// The number in an echo's answer.
pub fn echo_number(frame: &[u8]) -> Option<u32> {
    let (ECHO_PORT, payload) = udp_payload(frame)? else { return None };
    Some(u32::from_be_bytes(*payload.first_chunk()?))
}

/// An ICMP echo request.
pub fn ping_frame(station: &Identity, sequence: u16, payload_bytes: usize) -> Result<Vec<u8>> {
    const AT: usize = ethernet::HEADER_BYTES + ipv4::HEADER_BYTES_MIN;
    let message_bytes = icmp::HEADER_BYTES + payload_bytes;
    let mut frame = vec![0; AT + message_bytes];
    for (at, byte) in frame[AT + icmp::HEADER_BYTES..].iter_mut().enumerate() {
        *byte = at as u8;
    }
    let ethertype = ethernet::TYPE_IPV4;
    ethernet::Repr { dst: station.mac, src: US.mac, ethertype }.write(&mut frame)?;
    let packet = ipv4::Repr {
        src: US.ip,
        dst: station.ip,
        protocol: ipv4::PROTOCOL_ICMP,
        ttl: ipv4::TTL,
        payload_bytes: message_bytes,
    };
    packet.write(&mut frame[ethernet::HEADER_BYTES..])?;
    let echo = icmp::Repr { kind: icmp::Kind::EchoRequest, id: PING_ID, sequence };
    echo.write(&mut frame[AT..])?;
    Ok(frame)
}

/// The sequence number of an ICMP echo reply whose checksums are right.
pub fn pong_sequence(frame: &[u8]) -> Option<u16> {
    let ethernet = ethernet::Packet::parse(frame).ok()?;
    let packet = ipv4::Packet::parse(ethernet.payload()).ok()?;
    packet.verify_checksum().ok()?;
    packet.header().expect_whole(ipv4::PROTOCOL_ICMP).ok()?;
    let message = icmp::Packet::parse(packet.payload()).ok()?;
    let ours = message.kind() == icmp::Kind::EchoReply && message.id() == PING_ID;
    ours.then(|| message.sequence())
}
