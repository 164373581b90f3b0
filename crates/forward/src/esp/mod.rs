//! ESP: packets of a tunnel are encrypted and authenticated between its two ends.
//!
//! Transport mode (RFC 4303) with AES-GCM (RFC 4106), straight in IP or in UDP (RFC 3948). The headers
//! in front of the payload move towards the start of the buffer; the payload stays in place.
//!
//! ```text
//! Ethernet | IP |             UDP | VXLAN | frame
//! Ethernet | IP | [UDP] | ESP | UDP | VXLAN | frame | padding | tag
//! ```
//!
//! No file, clock or thread: keys and their state are files of [`crate::run`].

mod key;
mod open;
mod replay;
mod seal;

use std::sync::Arc;

use wire::udp;

pub use key::{Key, KeyError};
pub use open::{OpenError, Receiver};
pub use replay::ReplayWindow;
pub use seal::{SealError, Sealing, Sender};

/// Protocol number of ESP. Source: RFC 4303.
pub const PROTOCOL: u8 = 50;
/// UDP port of ESP. Source: RFC 3948.
pub const UDP_PORT: u16 = 4500;
/// Bytes of a tag. Source: RFC 4106, section 6.
const TAG_BYTES: usize = 16;
/// SPI and sequence number.
const HEADER_BYTES: usize = 8;
/// Explicit part of the nonce.
const IV_BYTES: usize = 8;
/// Pad length and next header.
const TRAILER_BYTES: usize = 2;
/// Bytes behind a packet at most: padding to a multiple of four, trailer, tag.
pub const TAIL_BYTES_MAX: usize = 3 + TRAILER_BYTES + TAG_BYTES;
/// Bytes that the headers move at most.
pub const SHIFT_BYTES_MAX: usize = udp::HEADER_BYTES + HEADER_BYTES + IV_BYTES;

/// Headers in front of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// UDP between equal ports, without checksum.
    Udp {
        /// Port of both ends.
        port: u16,
    },
    /// None.
    Ip,
}

impl Framing {
    /// Bytes between the IP header and the encrypted part.
    pub fn shift_bytes(self) -> usize {
        let udp_bytes = match self {
            Framing::Udp { .. } => udp::HEADER_BYTES,
            Framing::Ip => 0,
        };
        udp_bytes + HEADER_BYTES + IV_BYTES
    }
}

/// Longest plain IP packet that fits into an MTU once it is encrypted, in bytes.
///
/// - `ip_bytes`: length of the IP header.
pub fn plain_bytes_max(mtu_bytes: usize, ip_bytes: usize, framing: Framing) -> usize {
    let room = mtu_bytes.saturating_sub(ip_bytes + framing.shift_bytes() + TAG_BYTES);
    ip_bytes + (room & !3).saturating_sub(TRAILER_BYTES)
}

/// Both directions of an encrypted tunnel.
#[derive(Debug)]
pub struct Association {
    /// Into the tunnel.
    pub sender: Sender,
    /// Out of it.
    pub receiver: Receiver,
}

/// Counters of an encrypted tunnel, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AssociationCounts {
    /// Encrypted.
    pub encrypted_count: u64,
    /// Decrypted.
    pub decrypted_count: u64,
    /// Dropped: not encrypted with the key, or changed on the way.
    pub bad_tag_count: u64,
    /// Dropped: received before, or too old.
    pub replayed_count: u64,
    /// Sequence numbers that are left.
    pub numbers_left: u64,
}

impl Association {
    /// Its counters.
    pub fn counts(&self) -> AssociationCounts {
        let [decrypted_count, bad_tag_count, replayed_count] = self.receiver.counts();
        AssociationCounts {
            encrypted_count: self.sender.sealed_count(),
            decrypted_count,
            bad_tag_count,
            replayed_count,
            numbers_left: (self.sender.sequence_max() + 1).saturating_sub(self.sender.next()),
        }
    }
}

/// Encryption of all tunnels.
#[derive(Debug, Default)]
pub struct Protection {
    by_tunnel: Vec<Option<Arc<Association>>>,
    /// SPIs of arriving packets with their tunnels, sorted.
    by_spi: Vec<(u32, usize)>,
    /// UDP ports of arriving packets.
    ports: Vec<u16>,
}

impl Protection {
    /// - `by_tunnel`: missing ones are not encrypted.
    pub fn new(by_tunnel: Vec<Option<Arc<Association>>>) -> Protection {
        let all = || by_tunnel.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?)));
        let mut by_spi: Vec<_> = all().map(|(at, it)| (it.receiver.spi(), at)).collect();
        by_spi.sort_unstable();
        let mut ports: Vec<_> = all()
            .filter_map(|(_, it)| match it.receiver.framing() {
                Framing::Udp { port } => Some(port),
                Framing::Ip => None,
            })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        Protection { by_tunnel, by_spi, ports }
    }

    /// True if no tunnel is encrypted.
    pub fn is_empty(&self) -> bool {
        self.by_spi.is_empty()
    }

    /// Encryption of a tunnel.
    #[inline]
    pub fn of(&self, tunnel: usize) -> Option<&Association> {
        self.by_tunnel.get(tunnel)?.as_deref()
    }
}

#[doc(hidden)]
pub mod fuzzing;

#[cfg(test)]
mod tests;
