//! Writes pcapng with nanosecond time stamps.
//!
//! Source: draft-ietf-opsawg-pcapng, section header, interface description, enhanced packet and
//! interface statistics blocks.

use std::io::{self, Write};
use std::net::SocketAddrV4;

use wire::{ipv4, udp};

use super::CaptureError;
use crate::late::Note;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// An entry of systemd's journal.
const JOURNAL: u32 = 9;

const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const SHB_USERAPPL: u16 = 4;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// Longest UDP payload in IPv4.
const PAYLOAD_BYTES_MAX: usize = 65_507;
/// IPv4 and UDP headers.
const HEADERS_BYTES: usize = ipv4::HEADER_BYTES_MIN + udp::HEADER_BYTES;

/// First header of each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet = 1,
    /// An IPv4 header, for datagrams of a socket.
    RawIp = 101,
}

/// Captured interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedInterface<'a> {
    pub name: &'a str,
    /// First header of its packets.
    pub link: LinkType,
}

/// Writer of a pcapng file with one interface.
///
/// The output should be buffered. Nothing is allocated per packet.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    packets: u64,
    /// Headers of the current packet.
    headers: [u8; HEADERS_BYTES],
}

impl<W: Write> Writer<W> {
    /// Writes section header and interface, with time stamps in nanoseconds.
    pub fn new(
        output: W,
        interface: &CapturedInterface<'_>,
        application: &str,
    ) -> Result<Self, CaptureError> {
        let mut writer = Writer { output, packets: 0, headers: [0; HEADERS_BYTES] };
        writer.begin(interface, application).map_err(|source| writer.failed(source))?;
        Ok(writer)
    }

    fn begin(&mut self, interface: &CapturedInterface<'_>, application: &str) -> io::Result<()> {
        let application = option(SHB_USERAPPL, application.as_bytes());
        let mut section = Vec::new();
        section.extend(0x1a2b_3c4d_u32.to_le_bytes());
        section.extend([1, 0, 0, 0]);
        section.extend((-1_i64).to_le_bytes());
        section.extend(application);
        section.extend([0; 4]);
        self.block(SECTION, &[&section])?;
        let mut description = Vec::new();
        description.extend((interface.link as u16).to_le_bytes());
        description.extend([0; 2]);
        description.extend(0_u32.to_le_bytes());
        description.extend(option(IF_NAME, interface.name.as_bytes()));
        description.extend(option(IF_TSRESOL, &[9]));
        description.extend([0; 4]);
        self.block(INTERFACE, &[&description])
    }

    /// Writes a captured packet, which starts with the header of the interface's link type.
    ///
    /// - `stamp_ns`: nanoseconds since 1970 UTC.
    pub fn packet(&mut self, stamp_ns: u64, packet: &[u8]) -> Result<(), CaptureError> {
        self.packets += 1;
        self.write_packet(stamp_ns, &[packet]).map_err(|source| self.failed(source))
    }

    /// Writes a datagram of a socket with generated IPv4 and UDP headers: valid checksums, time to
    /// live 1, no options. The link type must be [`LinkType::RawIp`].
    pub fn datagram(
        &mut self,
        stamp_ns: u64,
        source: SocketAddrV4,
        destination: SocketAddrV4,
        payload: &[u8],
    ) -> Result<(), CaptureError> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(CaptureError::TooLong { payload_bytes: payload.len() });
        }
        self.packets += 1;
        self.headers = headers(source, destination, payload);
        let headers = self.headers;
        self.write_packet(stamp_ns, &[&headers, payload]).map_err(|e| self.failed(e))
    }

    /// Writes statistics after the last packet: packets that arrived, and how many of these were
    /// dropped before they were written.
    pub fn statistics(
        &mut self,
        stamp_ns: u64,
        received: u64,
        dropped: u64,
    ) -> Result<(), CaptureError> {
        let mut body = [0; 40];
        body[4..12].copy_from_slice(&stamp(stamp_ns));
        for (at, code, count) in [(12, ISB_IFRECV, received), (24, ISB_IFDROP, dropped)] {
            body[at..at + 2].copy_from_slice(&code.to_le_bytes());
            body[at + 2..at + 4].copy_from_slice(&8_u16.to_le_bytes());
            body[at + 4..at + 12].copy_from_slice(&count.to_le_bytes());
        }
        self.block(STATISTICS, &[&body]).map_err(|source| self.failed(source))
    }

    /// Writes a note about late datagrams.
    pub(crate) fn note(&mut self, note: &Note) -> Result<(), CaptureError> {
        let entry = note.to_string();
        self.block(JOURNAL, &[entry.as_bytes()]).map_err(|source| self.failed(source))
    }

    /// Packets written.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        self.output.flush().map_err(|source| self.failed(source))
    }

    /// Flushes and returns the output.
    pub fn into_inner(mut self) -> Result<W, CaptureError> {
        self.flush()?;
        Ok(self.output)
    }

    fn write_packet(&mut self, stamp_ns: u64, parts: &[&[u8]]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let bytes = bytes as u32;
        let mut head = [0; 20];
        head[4..12].copy_from_slice(&stamp(stamp_ns));
        head[12..16].copy_from_slice(&bytes.to_le_bytes());
        head[16..20].copy_from_slice(&bytes.to_le_bytes());
        match parts {
            [one] => self.block(PACKET, &[&head, one]),
            [one, two] => self.block(PACKET, &[&head, one, two]),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Writes a block from the parts of its body.
    fn block(&mut self, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let padding = body.wrapping_neg() % 4;
        let total = u32::try_from(12 + body + padding)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?
            .to_le_bytes();
        self.output.write_all(&kind.to_le_bytes())?;
        self.output.write_all(&total)?;
        for part in parts {
            self.output.write_all(part)?;
        }
        self.output.write_all(&[0; 3][..padding])?;
        self.output.write_all(&total)
    }

    fn failed(&self, source: io::Error) -> CaptureError {
        CaptureError::Write { number: self.packets, source }
    }
}

/// High half first, each little-endian.
fn stamp(stamp_ns: u64) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h] = stamp_ns.to_le_bytes();
    [e, f, g, h, a, b, c, d]
}

/// Encodes an option with padding; a value that is too long is truncated.
fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    let mut bytes = Vec::with_capacity(value.len() + 8);
    bytes.extend(code.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn headers(source: SocketAddrV4, destination: SocketAddrV4, payload: &[u8]) -> [u8; HEADERS_BYTES] {
    let (src, dst) = (*source.ip(), *destination.ip());
    let udp_bytes = udp::HEADER_BYTES + payload.len();
    let ip =
        ipv4::Repr { src, dst, protocol: ipv4::PROTOCOL_UDP, ttl: 1, payload_bytes: udp_bytes };
    let datagram = udp::Repr {
        src_port: source.port(),
        dst_port: destination.port(),
        payload_bytes: payload.len(),
    };
    let mut bytes = [0; HEADERS_BYTES];
    let (first, second) = bytes.split_at_mut(ipv4::HEADER_BYTES_MIN);
    // Cannot fail: both buffers are long enough, and the payload length was checked.
    let written = ip.write(first).and_then(|()| datagram.write_header(second));
    debug_assert!(written.is_ok(), "{written:?}");
    let pseudo = wire::checksum::pseudo_header_sum(src, dst, ipv4::PROTOCOL_UDP, udp_bytes as u16);
    let head = wire::checksum::add(pseudo, wire::checksum::sum(second));
    let sum = wire::checksum::add(head, wire::checksum::sum(payload));
    second[udp::CHECKSUM_OFFSET..][..2]
        .copy_from_slice(&wire::checksum::finish_udp(sum).to_be_bytes());
    bytes
}
