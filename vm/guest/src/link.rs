//! The wire to the guest, one datagram per frame.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use telemetry::dump::PORT;
use telemetry::{Entry, Snapshot};
use wire::{arp, ethernet};

use super::dump::{self, DumpTransport};
use super::echo::{udp_frame, udp_payload};
pub(super) use super::endpoint::ANSWER_TIMEOUT;
pub use super::endpoint::{Endpoint, FRAME_BYTES_MAX, GUEST_IP, US};
use super::error::GuestError;

/// Time limit of a send while the card has no room.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of one poll for the announcement.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);

/// The near end of the wire.
#[derive(Debug)]
pub struct GuestLink {
    socket: UnixDatagram,
    card: PathBuf,
}

impl GuestLink {
    pub(super) fn new(socket: UnixDatagram, card: PathBuf) -> Result<GuestLink, GuestError> {
        let link = GuestLink { socket, card };
        link.set_receive_timeout(POLL_TIMEOUT)?;
        Ok(link)
    }

    pub fn try_clone(&self) -> Result<GuestLink, GuestError> {
        let socket = self.socket.try_clone().map_err(GuestError::io("cloning the wire"))?;
        Ok(GuestLink { socket, card: self.card.clone() })
    }

    /// Polls for the firmware's announcement.
    pub(super) fn is_announced(&self) -> Result<bool, GuestError> {
        let mut frame = [0; FRAME_BYTES_MAX];
        let Some(len) = self.receive(&mut frame)? else { return Ok(false) };
        let packet = ethernet::Packet::parse(&frame[..len])?;
        Ok(packet.ethertype() == ethernet::TYPE_ARP)
    }

    /// Connects to the card's socket, which exists once QEMU runs.
    pub fn connect(&self) -> Result<(), GuestError> {
        self.socket.connect(&self.card).map_err(GuestError::io("connecting to the card"))?;
        // A hung guest must not block a send without limit.
        let doing = "setting how long to wait for the card";
        self.socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(GuestError::io(doing))?;
        self.set_receive_timeout(ANSWER_TIMEOUT)
    }

    /// Sets the time limit of [`receive`](Self::receive).
    pub fn set_receive_timeout(&self, timeout: Duration) -> Result<(), GuestError> {
        let doing = "setting how long to wait for a frame";
        self.socket.set_read_timeout(Some(timeout)).map_err(GuestError::io(doing))
    }

    /// Sends a frame; waits while the card has no room.
    pub fn send(&self, frame: &[u8]) -> Result<(), GuestError> {
        loop {
            match self.socket.send(frame) {
                Ok(_) => return Ok(()),
                // SIGSTOP and SIGCONT interrupt a send with a time limit.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(GuestError::io("sending a frame")(error)),
            }
        }
    }

    /// Receives a frame. Returns its length, or `None` on timeout.
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

    /// Sends an ARP request for an address; does not wait for the answer.
    pub fn request(&self, ip: Ipv4Addr) -> Result<(), GuestError> {
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
        self.send(&frame)
    }

    /// Resolves an address by ARP.
    pub fn resolve(&self, ip: Ipv4Addr) -> Result<Endpoint, GuestError> {
        self.request(ip)?;
        let mut answer = [0; FRAME_BYTES_MAX];
        while let Some(len) = self.receive(&mut answer)? {
            if let Some(peer) = GuestLink::resolved(&answer[..len], ip)? {
                return Ok(peer);
            }
        }
        Err(GuestError::Silent { what: format!("an ARP request for {ip}") })
    }

    /// The host that `frame`, if it is an ARP reply, names for an address.
    pub(super) fn resolved(frame: &[u8], ip: Ipv4Addr) -> Result<Option<Endpoint>, GuestError> {
        let packet = ethernet::Packet::parse(frame)?;
        if packet.ethertype() != ethernet::TYPE_ARP {
            return Ok(None);
        }
        let reply = arp::Packet::parse(packet.payload())?;
        let is_it = reply.operation() == arp::Operation::Reply && reply.sender_ip() == ip;
        Ok(is_it.then(|| Endpoint { mac: reply.sender_mac(), ip }))
    }

    /// Answers an ARP request for the near end. Returns true if `frame` was one.
    ///
    /// The firmware sends none. Linux does before its first answer, and again from time to time.
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

    pub fn counters(&self, peer: &Endpoint, token: u16) -> Result<Snapshot, GuestError> {
        dump::counters(&mut FrameTransport { link: self, peer }, token)
    }

    /// Requests the counters; does not wait for the [answer](Self::counters_in).
    pub(super) fn request_counters(&self, peer: &Endpoint, token: u16) -> Result<(), GuestError> {
        FrameTransport { link: self, peer }.request(&dump::counters_request(token).bytes())
    }

    /// The counters, if `frame` is the answer to their request.
    pub(super) fn counters_in(frame: &[u8], token: u16) -> Result<Option<Snapshot>, GuestError> {
        match udp_payload(frame) {
            Some((PORT, payload)) => dump::counters_in(payload, token),
            _ => Ok(None),
        }
    }

    /// The trace ring, oldest entry first.
    pub fn trace(&self, peer: &Endpoint, token: u16) -> Result<Vec<Entry>, GuestError> {
        dump::trace(&mut FrameTransport { link: self, peer }, token)
    }
}

/// Requests in frames on the wire.
struct FrameTransport<'a> {
    link: &'a GuestLink,
    peer: &'a Endpoint,
}

impl DumpTransport for FrameTransport<'_> {
    fn request(&mut self, request: &[u8]) -> Result<(), GuestError> {
        self.link.send(&udp_frame(self.peer, PORT, request)?)
    }

    fn answer(&mut self, into: &mut Vec<u8>) -> Result<bool, GuestError> {
        let mut frame = [0; FRAME_BYTES_MAX];
        let begun = Instant::now();
        // Answers to a flood may come without end.
        while begun.elapsed() < ANSWER_TIMEOUT
            && let Some(len) = self.link.receive(&mut frame)?
        {
            if let Some((PORT, payload)) = udp_payload(&frame[..len]) {
                into.clear();
                into.extend_from_slice(payload);
                return Ok(true);
            }
        }
        Ok(false)
    }
}
