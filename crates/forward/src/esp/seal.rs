//! Encryption of a packet.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::{checksum, ethernet, ipv4, ipv6, udp};

use super::{Framing, HEADER_BYTES, IV_BYTES, Key, PROTOCOL, TAG_BYTES, TRAILER_BYTES};
use crate::encap::Place;

/// Reason for a packet that is not encrypted, and therefore dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// No room in front of the packet or behind it, or no IP packet.
    #[error("no room for the headers of ESP")]
    NoRoom,
    /// The sequence number is not reserved yet in the key's state file.
    #[error("the sequence number is not reserved yet")]
    Unreserved,
    /// All sequence numbers of the key have been used.
    #[error("all sequence numbers of the key have been used")]
    Exhausted,
}

impl SealError {
    /// All reasons, in the order of [`Self::index`].
    pub const ALL: [SealError; 3] =
        [SealError::NoRoom, SealError::Unreserved, SealError::Exhausted];

    /// Index in [`Self::ALL`], for an array of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            SealError::NoRoom => "esp_no_room",
            SealError::Unreserved => "esp_unreserved",
            SealError::Exhausted => "esp_exhausted",
        }
    }
}

/// Encrypts the packets of one direction of a tunnel, on any number of threads.
#[derive(Debug)]
pub struct Sender {
    key: Key,
    framing: Framing,
    first: u64,
    /// Position and nonce of `first`.
    first_position: u64,
    first_iv: u64,
    /// Numbers left out, see [`Self::renumber`].
    skipped: AtomicU64,
    sealed_count: AtomicU64,
    /// Least number that may not be used yet.
    limit: AtomicU64,
    /// One above the highest number used.
    next: AtomicU64,
}

impl Sender {
    /// - `first`: number of the packet at position 0, at least 1.
    /// - `limit`: see [`Self::reserve`].
    pub fn new(key: Key, framing: Framing, first: u64, limit: u64) -> Sender {
        Sender {
            key,
            framing,
            first,
            first_position: 0,
            first_iv: first,
            skipped: AtomicU64::new(0),
            sealed_count: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
            next: AtomicU64::new(first),
        }
    }

    /// The same with another position of the first packet, and with nonces that count from `iv` on.
    pub fn starting_at(self, position: u64, iv: u64) -> Sender {
        Sender { first_position: position, first_iv: iv, ..self }
    }

    /// Number of the packet at a position; `None` for one of before the first.
    pub fn number(&self, position: u64) -> Option<u64> {
        let ahead = position.checked_sub(self.first_position)?;
        let number = self.first.saturating_add(ahead);
        number.checked_sub(self.skipped.load(Ordering::Relaxed)).filter(|it| *it >= self.first)
    }

    /// Changes the number of a position, and of those that follow. Nonces stay those of the positions, so
    /// that none is used twice.
    ///
    /// A receiver finds the upper half of a number only within 2^32 of the last one; positions are taken by the
    /// frames of all tunnels, so the numbers of a silent one would run away from it.
    pub fn renumber(&self, position: u64, number: u64) {
        let ahead = position.saturating_sub(self.first_position);
        let skipped = self.first.saturating_add(ahead).saturating_sub(number);
        self.skipped.store(skipped, Ordering::Relaxed);
    }

    /// Packets encrypted.
    pub fn sealed_count(&self) -> u64 {
        self.sealed_count.load(Ordering::Relaxed)
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Highest number of a key. One less than the last, so that no number wraps.
    pub fn sequence_max(&self) -> u64 {
        if self.key.is_extended() { u64::MAX - 1 } else { u64::from(u32::MAX) - 1 }
    }

    /// One above the highest number used.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Allows all numbers below `limit`, which no later start uses.
    pub fn reserve(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Encrypts packets of a batch; they are counted when it is dropped.
    pub fn sealing(&self) -> Sealing<'_> {
        Sealing { sender: self, sealed_count: 0, next: 0 }
    }

    /// Encrypts a packet. Returns the place of the whole.
    ///
    /// - `whole`: an Ethernet header without tags, an IP header without options, and a payload, with room
    ///   in front and behind ([`super::SHIFT_BYTES_MAX`], [`super::TAIL_BYTES_MAX`]).
    /// - `position`: different for each packet of this sender. Sending in ascending order keeps the
    ///   receiver's window small.
    ///
    /// On an error the packet is dropped; none leaves in clear.
    pub fn seal(&self, buffer: &mut [u8], whole: Place, position: u64) -> Result<Place, SealError> {
        self.sealing().seal(buffer, whole, position)
    }

    fn write(&self, buffer: &mut [u8], whole: Place, (sequence, iv): (u64, u64)) -> Option<Place> {
        let shift = self.framing.shift_bytes();
        let at = whole.at.checked_sub(shift)?;
        let end = whole.at.checked_add(whole.len)?;
        let packet = buffer.get(whole.at..end)?;
        let ip_bytes = match packet.get(ethernet::HEADER_BYTES)? >> 4 {
            4 => ipv4::HEADER_BYTES_MIN,
            6 => ipv6::HEADER_BYTES,
            _ => return None,
        };
        let headers_bytes = ethernet::HEADER_BYTES + ip_bytes;
        let text_at = whole.at + headers_bytes;
        let payload_bytes = end.checked_sub(text_at)?;
        let padding = (payload_bytes + TRAILER_BYTES).wrapping_neg() & 3;
        let text_end = end + padding + TRAILER_BYTES;
        let next = next_header(&buffer[whole.at..text_at], ip_bytes);
        let tail = buffer.get_mut(end..text_end + TAG_BYTES)?;
        for (byte, number) in tail.iter_mut().zip(1..).take(padding) {
            *byte = number;
        }
        tail[padding] = padding as u8;
        tail[padding + 1] = next;
        let iv = iv.to_be_bytes();
        let tag = self.key.seal(sequence, iv, &mut buffer[text_at..text_end])?;
        buffer[text_end..text_end + TAG_BYTES].copy_from_slice(&tag);
        buffer.copy_within(whole.at..text_at, at);
        let gap_at = at + headers_bytes;
        let carried_bytes = text_end + TAG_BYTES - gap_at;
        let (udp_header, esp) =
            buffer[gap_at..text_at].split_at_mut(shift - HEADER_BYTES - IV_BYTES);
        esp[..4].copy_from_slice(&self.key.spi().to_be_bytes());
        esp[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        esp[8..].copy_from_slice(&iv);
        let protocol = match self.framing {
            Framing::Ip => PROTOCOL,
            Framing::Udp { port } => {
                udp_header.fill(0);
                udp_header[udp::SRC_PORT_OFFSET..][..2].copy_from_slice(&port.to_be_bytes());
                udp_header[udp::DST_PORT_OFFSET..][..2].copy_from_slice(&port.to_be_bytes());
                let len = u16::try_from(carried_bytes).ok()?;
                udp_header[udp::LEN_OFFSET..][..2].copy_from_slice(&len.to_be_bytes());
                ipv4::PROTOCOL_UDP
            }
        };
        let ip = &mut buffer[at + ethernet::HEADER_BYTES..gap_at];
        set_payload(ip, protocol, carried_bytes)?;
        Some(Place { at, len: headers_bytes + carried_bytes })
    }
}

/// Packets of a batch that one worker encrypts. A count for each would move a cache line from CPU to CPU.
#[derive(Debug)]
pub struct Sealing<'a> {
    sender: &'a Sender,
    sealed_count: u64,
    /// One above the highest number used, 0 if none is.
    next: u64,
}

impl Sealing<'_> {
    /// Same as [`Sender::seal`].
    pub fn seal(
        &mut self,
        buffer: &mut [u8],
        whole: Place,
        position: u64,
    ) -> Result<Place, SealError> {
        let sender = self.sender;
        // One of before the key was taken into use.
        let ahead = position.checked_sub(sender.first_position).ok_or(SealError::Unreserved)?;
        let sequence = sender.number(position).ok_or(SealError::Unreserved)?;
        let iv = sender.first_iv.checked_add(ahead).ok_or(SealError::Exhausted)?;
        if sequence > sender.sequence_max() {
            return Err(SealError::Exhausted);
        }
        if sequence >= sender.limit.load(Ordering::Relaxed) {
            return Err(SealError::Unreserved);
        }
        let place = sender.write(buffer, whole, (sequence, iv)).ok_or(SealError::NoRoom)?;
        self.sealed_count += 1;
        self.next = self.next.max(sequence + 1);
        Ok(place)
    }
}

impl Drop for Sealing<'_> {
    fn drop(&mut self) {
        if self.sealed_count > 0 {
            self.sender.sealed_count.fetch_add(self.sealed_count, Ordering::Relaxed);
            self.sender.next.fetch_max(self.next, Ordering::Relaxed);
        }
    }
}

/// Protocol of an IP packet's payload.
fn next_header(headers: &[u8], ip_bytes: usize) -> u8 {
    let ip = &headers[ethernet::HEADER_BYTES..];
    if ip_bytes == ipv6::HEADER_BYTES { ip[ipv6::NEXT_OFFSET] } else { ip[ipv4::PROTOCOL_OFFSET] }
}

/// Writes protocol, length and checksum of an IP header. `None` if the length has more than 16 bits.
pub(super) fn set_payload(ip: &mut [u8], protocol: u8, payload_bytes: usize) -> Option<()> {
    if ip.first()? >> 4 == 6 {
        *ip.get_mut(ipv6::NEXT_OFFSET)? = protocol;
        let len = u16::try_from(payload_bytes).ok()?;
        ip.get_mut(ipv6::PAYLOAD_OFFSET..)?.first_chunk_mut().map(|to| *to = len.to_be_bytes())
    } else {
        let total = u16::try_from(ip.len() + payload_bytes).ok()?;
        *ip.get_mut(ipv4::PROTOCOL_OFFSET)? = protocol;
        ip.get_mut(ipv4::TOTAL_OFFSET..)?.first_chunk_mut().map(|to| *to = total.to_be_bytes())?;
        ip.get_mut(ipv4::CHECKSUM_OFFSET..)?.first_chunk_mut().map(|to| *to = [0_u8; 2])?;
        let sum = checksum::checksum(ip).to_be_bytes();
        ip.get_mut(ipv4::CHECKSUM_OFFSET..)?.first_chunk_mut().map(|to| *to = sum)
    }
}
