//! The wire between us and the guest, one datagram a frame.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use observe::dump::PORT;
use observe::{Entry, Snapshot};
use wire::{arp, ethernet};

use super::dump::{self, Asking};
use super::echo::{udp_frame, udp_payload};
use super::error::GuestError;

/// Longest frame.
pub const FRAME_BYTES_MAX: usize = 1514;
/// Address of the guest, unless it is given another.
pub const GUEST_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Who we are.
pub const US: Station = Station { mac: [2, 0, 0, 0, 0, 1], ip: Ipv4Addr::new(10, 0, 0, 1) };
/// How long an answer may take.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long the card may take to make room for a frame.
const SEND_MAX: Duration = Duration::from_secs(30);
/// How long one look for the announcement lasts.
const LOOK: Duration = Duration::from_millis(50);

/// A station on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// MAC address.
    pub mac: [u8; 6],
    /// Address.
    pub ip: Ipv4Addr,
}

/// Our end.
#[derive(Debug)]
pub struct Link {
    socket: UnixDatagram,
    card: PathBuf,
}

impl Link {
    pub(super) fn new(socket: UnixDatagram, card: PathBuf) -> Result<Link, GuestError> {
        let link = Link { socket, card };
        link.set_patience(LOOK)?;
        Ok(link)
    }

    /// Another handle, for another thread.
    pub fn try_clone(&self) -> Result<Link, GuestError> {
        let socket = self.socket.try_clone().map_err(GuestError::io("cloning the wire"))?;
        Ok(Link { socket, card: self.card.clone() })
    }

    /// Waits a moment for the firmware's announcement.
    pub(super) fn is_announced(&self) -> Result<bool, GuestError> {
        let mut frame = [0; FRAME_BYTES_MAX];
        let Some(len) = self.receive(&mut frame)? else { return Ok(false) };
        let packet = ethernet::Packet::parse(&frame[..len])?;
        Ok(packet.ethertype() == ethernet::TYPE_ARP)
    }

    /// Connects to the card, which is there once QEMU runs.
    pub fn connect(&self) -> Result<(), GuestError> {
        self.socket.connect(&self.card).map_err(GuestError::io("connecting to the card"))?;
        // A guest that takes nothing any more must not hold us for ever.
        let doing = "setting how long to wait for the card";
        self.socket.set_write_timeout(Some(SEND_MAX)).map_err(GuestError::io(doing))?;
        self.set_patience(ANSWER_MAX)
    }

    /// How long [`receive`](Self::receive) waits.
    pub(super) fn set_patience(&self, patience: Duration) -> Result<(), GuestError> {
        let doing = "setting how long to wait for a frame";
        self.socket.set_read_timeout(Some(patience)).map_err(GuestError::io(doing))
    }

    /// Sends a frame; waits as long as the card takes no more.
    pub fn send(&self, frame: &[u8]) -> Result<(), GuestError> {
        loop {
            match self.socket.send(frame) {
                Ok(_) => return Ok(()),
                // As after a stop and a continue of this process, for there is a time limit.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(GuestError::io("sending a frame")(error)),
            }
        }
    }

    /// The next frame's length; `None` when none came in time.
    pub fn receive(&self, frame: &mut [u8]) -> Result<Option<usize>, GuestError> {
        loop {
            match self.socket.recv(frame) {
                Ok(len) => return Ok(Some(len)),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    ErrorKind::Interrupted => {}
                    _ => return Err(GuestError::io("receiving a frame")(error)),
                },
            }
        }
    }

    /// Asks who has an address.
    pub fn resolve(&self, ip: Ipv4Addr) -> Result<Station, GuestError> {
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
                    return Ok(Station { mac: reply.sender_mac(), ip });
                }
            }
        }
        Err(GuestError::Silent { what: format!("the question who has {ip}") })
    }

    /// Answers an ARP request for our address; whether `frame` was one.
    ///
    /// The firmware never asks. Linux does before its first answer, and again from time to time.
    pub(super) fn answer_arp(&self, frame: &[u8]) -> Result<bool, GuestError> {
        let Ok(packet) = ethernet::Packet::parse(frame) else { return Ok(false) };
        if packet.ethertype() != ethernet::TYPE_ARP {
            return Ok(false);
        }
        let Ok(asked) = arp::Packet::parse(packet.payload()) else { return Ok(false) };
        if asked.operation() != arp::Operation::Request || asked.target_ip() != US.ip {
            return Ok(false);
        }
        let mut answer = [0; 60];
        let (dst, ethertype) = (asked.sender_mac(), ethernet::TYPE_ARP);
        ethernet::Repr { dst, src: US.mac, ethertype }.write(&mut answer)?;
        let reply = arp::Repr::of(&asked).reply_from(US.mac);
        reply.write(&mut answer[ethernet::HEADER_BYTES..])?;
        self.send(&answer)?;
        Ok(true)
    }

    /// The firmware's counters.
    pub fn counters(&self, station: &Station, token: u16) -> Result<Snapshot, GuestError> {
        dump::counters(&mut OnWire { link: self, station }, token)
    }

    /// Its trace ring, oldest first.
    pub fn trace(&self, station: &Station, token: u16) -> Result<Vec<Entry>, GuestError> {
        dump::trace(&mut OnWire { link: self, station }, token)
    }
}

/// Datagrams to and from the station's port for questions.
struct OnWire<'a> {
    link: &'a Link,
    station: &'a Station,
}

impl Asking for OnWire<'_> {
    fn ask(&mut self, question: &[u8]) -> Result<(), GuestError> {
        self.link.send(&udp_frame(self.station, PORT, question)?)
    }

    fn answer(&mut self, into: &mut Vec<u8>) -> Result<bool, GuestError> {
        let mut frame = [0; FRAME_BYTES_MAX];
        while let Some(len) = self.link.receive(&mut frame)? {
            if let Some((PORT, payload)) = udp_payload(&frame[..len]) {
                into.clear();
                into.extend_from_slice(payload);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
