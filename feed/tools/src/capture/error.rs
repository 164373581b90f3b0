//! Errors of captures, with remedies.

use std::io;

use thiserror::Error;

/// Error of reading or writing a capture. Packet numbers count from 1, offsets are bytes from the
/// start of the file.
#[derive(Debug, Error)]
pub enum CaptureError {
    #[error("cannot open {file}; check the name and the permissions")]
    Open {
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {file} at offset {offset}, after packet {packets}")]
    Read {
        file: String,
        packets: u64,
        offset: u64,
        #[source]
        source: io::Error,
    },
    /// The compressed file ends within its data.
    #[error(
        "{file} is torn: its gzip data end after packet {packets}; the packets before are whole; the copy or \
         download was cut"
    )]
    GzipTorn { file: String, packets: u64 },
    #[error(
        "{file} is damaged: its gzip data are wrong after packet {packets}; the packets before are whole"
    )]
    GzipDamaged {
        file: String,
        packets: u64,
        #[source]
        source: io::Error,
    },
    #[error(
        "{file} is not a capture: {compressed_bytes} bytes inflate to more than {inflated_bytes}; if it is one, \
         inflate it (gunzip) and give the result"
    )]
    GzipTooMuch { file: String, compressed_bytes: u64, inflated_bytes: u64 },
    #[error("{file} is empty; check that the capture was flushed")]
    Empty { file: String },
    #[error("{file} is compressed ({format}); inflate it ({tool}) and give the result")]
    Compressed { file: String, format: &'static str, tool: &'static str },
    #[error(
        "{file} starts with {found:02x?}: neither pcap (d4c3b2a1 or a variant), pcapng (0a0d0d0a) \
         nor telegrams (1b and nine bytes of digits); give --format twse if telegrams follow other bytes, or convert \
         it, e.g. with editcap -F pcapng"
    )]
    Unknown { file: String, found: Vec<u8> },
    /// The file ends within a packet.
    #[error(
        "{file} ends at offset {end} within packet {number}, which starts at offset {offset}; \
         the packets before it are whole; the capture was truncated or is still being written"
    )]
    Truncated { file: String, number: u64, offset: u64, end: u64 },
    #[error(
        "{file} is damaged at packet {number}, offset {offset}: {what}; the packets before it \
         are whole, later ones cannot be located (editcap or pcapfix may recover more)"
    )]
    Malformed {
        file: String,
        /// Number of the packet, or of the next one if between packets.
        number: u64,
        offset: u64,
        what: String,
    },
    /// Unsupported link type. Reading can continue.
    #[error(
        "{file}, packet {number} at offset {offset}: link type {link} is not supported; capture on \
         Ethernet, with tcpdump -i any, or as raw IP"
    )]
    Link {
        file: String,
        /// Number of the first packet with it.
        number: u64,
        offset: u64,
        link: i64,
    },
    #[error("cannot write packet {number} to the capture; check that the disk is not full")]
    Write {
        /// Number of the packet; 0 for the file header.
        number: u64,
        #[source]
        source: io::Error,
    },
    #[error("a datagram of {payload_bytes} bytes exceeds the 65507 that IPv4 can carry")]
    TooLong { payload_bytes: usize },
}
