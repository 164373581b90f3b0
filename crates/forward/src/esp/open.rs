//! Decryption of a packet from the network.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wire::{ethernet, gre, ipv4, ipv6, udp};

use super::seal::set_payload;
use super::{
    Framing, HEADER_BYTES, IV_BYTES, Key, PROTOCOL, Protection, ReplayWindow, TAG_BYTES,
    TRAILER_BYTES,
};
use crate::encap::Place;

/// Reason for an ESP packet that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Shorter than its headers, a wrong IP checksum, a fragment, or a payload that is no tunnel's.
    #[error("malformed ESP packet")]
    Malformed,
    /// No tunnel between these addresses has this number.
    #[error("unknown SPI")]
    UnknownSpi,
    /// Received before, or too old for the window.
    #[error("received before, or too old")]
    Replayed,
    /// Not encrypted with the key, or changed on the way.
    #[error("wrong tag")]
    BadTag,
    /// The packet inside belongs to another tunnel.
    #[error("packet of another tunnel inside")]
    WrongTunnel,
    /// A packet in clear of a tunnel that is encrypted.
    #[error("packet in clear of an encrypted tunnel")]
    Clear,
}

impl OpenError {
    /// All reasons, in the order of [`Self::index`].
    pub const ALL: [OpenError; 6] = [
        OpenError::Malformed,
        OpenError::UnknownSpi,
        OpenError::Replayed,
        OpenError::BadTag,
        OpenError::WrongTunnel,
        OpenError::Clear,
    ];

    /// Index in [`Self::ALL`], for an array of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            OpenError::Malformed => "esp_malformed",
            OpenError::UnknownSpi => "esp_unknown_spi",
            OpenError::Replayed => "esp_replayed",
            OpenError::BadTag => "esp_bad_tag",
            OpenError::WrongTunnel => "esp_wrong_tunnel",
            OpenError::Clear => "esp_clear",
        }
    }
}

/// Decrypts the packets of one direction of a tunnel, on any number of threads.
#[derive(Debug)]
pub struct Receiver {
    key: Key,
    framing: Framing,
    /// Sender and receiver of the packets.
    ends: (IpAddr, IpAddr),
    window: Mutex<ReplayWindow>,
    opened_count: AtomicU64,
    bad_tag_count: AtomicU64,
    replayed_count: AtomicU64,
}

impl Receiver {
    /// - `ends`: address of the other end, local address.
    pub fn new(
        key: Key,
        framing: Framing,
        ends: (IpAddr, IpAddr),
        window: ReplayWindow,
    ) -> Receiver {
        Receiver {
            key,
            framing,
            ends,
            window: Mutex::new(window),
            opened_count: AtomicU64::new(0),
            bad_tag_count: AtomicU64::new(0),
            replayed_count: AtomicU64::new(0),
        }
    }

    /// Number of its packets.
    pub fn spi(&self) -> u32 {
        self.key.spi()
    }

    /// Headers of its packets.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Highest sequence number received.
    pub fn top(&self) -> u64 {
        self.window().top()
    }

    /// Packets decrypted, with a wrong tag, and received before.
    pub fn counts(&self) -> [u64; 3] {
        [&self.opened_count, &self.bad_tag_count, &self.replayed_count]
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// Decrypts in place. Returns the length of the plain text.
    ///
    /// - `low`: lower half of the sequence number.
    /// - `sealed`: cipher text and tag.
    fn open(&self, low: u32, iv: [u8; IV_BYTES], sealed: &mut [u8]) -> Result<usize, OpenError> {
        let refused = |count: &AtomicU64, reason| {
            count.fetch_add(1, Ordering::Relaxed);
            reason
        };
        let replayed = || refused(&self.replayed_count, OpenError::Replayed);
        let sequence = self.sequence(low).ok_or_else(replayed)?;
        let text_bytes = self.key.open(sequence, iv, sealed);
        let text_bytes =
            text_bytes.ok_or_else(|| refused(&self.bad_tag_count, OpenError::BadTag))?;
        if !self.window().accept(sequence) {
            // Another worker had the same packet.
            return Err(replayed());
        }
        self.opened_count.fetch_add(1, Ordering::Relaxed);
        Ok(text_bytes)
    }

    fn window(&self) -> MutexGuard<'_, ReplayWindow> {
        // No panic leaves it half changed.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole sequence number, if it was not received before.
    fn sequence(&self, low: u32) -> Option<u64> {
        let window = self.window();
        let sequence = match self.key.is_extended() {
            true => window.infer(low)?,
            false => low.into(),
        };
        window.admits(sequence).then_some(sequence)
    }
}

/// Headers of an ESP packet.
struct Found {
    ends: (IpAddr, IpAddr),
    is_udp: bool,
    ip_at: usize,
    ip_end: usize,
    /// From the SPI to the tag.
    esp: Range<usize>,
}

impl Protection {
    /// Decrypts a packet and restores the plain one. Returns its place and its tunnel; `None` if it is no
    /// ESP packet.
    ///
    /// - `frame`: the frame from the network, from its outer Ethernet header on.
    ///
    /// On an error the packet may have changed.
    pub fn open(
        &self,
        buffer: &mut [u8],
        frame: Place,
    ) -> Result<Option<(Place, usize)>, OpenError> {
        let end = frame.at.checked_add(frame.len).ok_or(OpenError::Malformed)?;
        let bytes = buffer.get_mut(frame.at..end).ok_or(OpenError::Malformed)?;
        let Some(found) = self.find(bytes)? else { return Ok(None) };
        let esp = bytes.get_mut(found.esp.clone()).ok_or(OpenError::Malformed)?;
        if esp.len() < HEADER_BYTES + IV_BYTES + TRAILER_BYTES + TAG_BYTES {
            return Err(OpenError::Malformed);
        }
        let (header, sealed) = esp.split_at_mut(HEADER_BYTES + IV_BYTES);
        let spi = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let low = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let at = self.by_spi.binary_search_by_key(&spi, |(known, _)| *known);
        let tunnel = at.map(|at| self.by_spi[at].1).map_err(|_| OpenError::UnknownSpi)?;
        let receiver = &self.of(tunnel).ok_or(OpenError::UnknownSpi)?.receiver;
        let is_udp = matches!(receiver.framing, Framing::Udp { .. });
        if receiver.ends != found.ends || is_udp != found.is_udp {
            return Err(OpenError::UnknownSpi);
        }
        let iv = *header.last_chunk().ok_or(OpenError::Malformed)?;
        let text_bytes = receiver.open(low, iv, sealed)?;
        let Some([padding, next]) = sealed[..text_bytes].last_chunk::<TRAILER_BYTES>().copied()
        else {
            return Err(OpenError::Malformed);
        };
        let payload_bytes = (text_bytes - TRAILER_BYTES)
            .checked_sub(padding.into())
            .filter(|_| next == ipv4::PROTOCOL_UDP || next == gre::PROTOCOL)
            .ok_or(OpenError::Malformed)?;
        let shift = found.esp.start + HEADER_BYTES + IV_BYTES - found.ip_end;
        bytes.copy_within(..found.ip_end, shift);
        let ip = bytes.get_mut(shift + found.ip_at..shift + found.ip_end);
        ip.and_then(|ip| set_payload(ip, next, payload_bytes)).ok_or(OpenError::Malformed)?;
        let place = Place { at: frame.at + shift, len: found.ip_end + payload_bytes };
        Ok(Some((place, tunnel)))
    }

    /// Headers of an ESP packet; `None` if it is another packet.
    fn find(&self, frame: &[u8]) -> Result<Option<Found>, OpenError> {
        let Ok(ethernet) = ethernet::Packet::parse(frame) else { return Ok(None) };
        let ip_at = ethernet.header_bytes();
        let rest = frame.get(ip_at..).unwrap_or(&[]);
        let (ends, protocol, ip_bytes, payload_bytes) = match ethernet.ethertype() {
            ethernet::TYPE_IPV4 => {
                let Ok(packet) = ipv4::Packet::parse(rest) else { return Ok(None) };
                let header = packet.header();
                if header.is_fragment() || packet.verify_checksum().is_err() {
                    // Decapsulation counts it.
                    return Ok(None);
                }
                let ends = (IpAddr::from(header.src()), IpAddr::from(header.dst()));
                (ends, header.protocol(), header.header_bytes(), header.payload_bytes())
            }
            ethernet::TYPE_IPV6 => {
                let Ok(header) = ipv6::Header::parse(rest, rest.len()) else { return Ok(None) };
                let ends = (IpAddr::from(header.src()), IpAddr::from(header.dst()));
                (ends, header.next(), ipv6::HEADER_BYTES, header.payload_bytes())
            }
            _ => return Ok(None),
        };
        let ip_end = ip_at + ip_bytes;
        let end = ip_end + payload_bytes;
        let found = |start, is_udp| Found { ends, is_udp, ip_at, ip_end, esp: start..end };
        match protocol {
            PROTOCOL => Ok(Some(found(ip_end, false))),
            ipv4::PROTOCOL_UDP => {
                let payload = frame.get(ip_end..end).ok_or(OpenError::Malformed)?;
                let Ok(header) = udp::Header::parse(payload, payload.len()) else {
                    return Ok(None);
                };
                if self.ports.binary_search(&header.dst_port()).is_err() {
                    return Ok(None);
                }
                let start = ip_end + udp::HEADER_BYTES;
                let esp = start..start + header.payload_bytes();
                Ok(Some(Found { esp, ..found(start, true) }))
            }
            _ => Ok(None),
        }
    }
}
