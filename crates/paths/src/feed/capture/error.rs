//! What can go wrong with a capture, and what to do about it.

use std::io;

use thiserror::Error;

/// Why a capture cannot be read or written. Packet numbers count from 1, offsets are bytes from
/// the start of the file.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// It cannot be opened.
    #[error("cannot open {file}; check the name and the permissions")]
    Open {
        /// Name of the file.
        file: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Reading failed.
    #[error("cannot read {file} from offset {offset} on, behind packet {packets}")]
    Read {
        /// Name of the file.
        file: String,
        /// Packets read before.
        packets: u64,
        /// Bytes read before.
        offset: u64,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Nothing in it.
    #[error("{file} is empty; was the capture ever flushed?")]
    Empty {
        /// Name of the file.
        file: String,
    },
    /// No magic that is known.
    #[error(
        "{file} begins with {found:02x?}: it is no pcap (offset 0 is d4c3b2a1 or a kin of it), \
         no pcapng (0a0d0d0a) and no telegrams (1b); give --format twse if it holds telegrams \
         behind something else, or convert it, e.g. with editcap -F pcapng"
    )]
    Unknown {
        /// Name of the file.
        file: String,
        /// Its first bytes.
        found: Vec<u8>,
    },
    /// It ends within a packet.
    #[error(
        "{file} ends at offset {end} within packet {number}, which starts at offset {offset}; \
         the packets before it are whole: was the capture cut off, or is it still being written?"
    )]
    Truncated {
        /// Name of the file.
        file: String,
        /// Number of the packet.
        number: u64,
        /// Where it starts.
        offset: u64,
        /// Where the file ends.
        end: u64,
    },
    /// A record that is not what the format says.
    #[error(
        "{file} is damaged at packet {number}, offset {offset}: {what}; the packets before it \
         are whole, what follows cannot be found (editcap or pcapfix may save more)"
    )]
    Malformed {
        /// Name of the file.
        file: String,
        /// Number of the packet, or of the next when it is between packets.
        number: u64,
        /// Where the record starts.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// A link type that we do not read. Reading can go on.
    #[error(
        "{file}, packet {number} at offset {offset}: link type {link} is not read; capture on \
         Ethernet, with tcpdump -i any, or of raw IP"
    )]
    Link {
        /// Name of the file.
        file: String,
        /// Number of the first packet with it.
        number: u64,
        /// Where it starts.
        offset: u64,
        /// The link type's number.
        link: i64,
    },
    /// Writing failed.
    #[error("cannot write packet {number} to the capture; is the disk full?")]
    Write {
        /// Number of the packet; 0 for the beginning of the file.
        number: u64,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// More than a packet can hold.
    #[error("a datagram of {payload_bytes} bytes does not fit into IPv4, which holds 65507")]
    TooLong {
        /// Bytes of the payload.
        payload_bytes: usize,
    },
}
