//! Records of both capture formats, parsed by `pcap-parser` after a check of their lengths.

use pcap_parser::pcapng::{InterfaceDescriptionBlock, OptionCode};
use pcap_parser::{Block, PcapHeader, parse_block_be, parse_block_le};

use crate::late::Note;

/// Longest valid record; libpcap writes at most 256 KiB per packet.
const RECORD_BYTES_MAX: usize = 16 << 20;
/// Largest number of interfaces of a section, far above any real capture.
const INTERFACES_MAX: usize = 65_536;

/// A whole record, with its packet or note if any.
pub(super) struct Record {
    pub(super) bytes: usize,
    pub(super) packet: Option<Raw>,
    pub(super) note: Option<Note>,
}

/// Position of a packet in its record.
pub(super) struct Raw {
    pub(super) link: i64,
    pub(super) stamp_ns: u64,
    pub(super) at: usize,
    pub(super) captured_bytes: usize,
    pub(super) original_bytes: usize,
}

/// Reason that bytes are not a record.
pub(super) enum Bad {
    /// More bytes are needed.
    Incomplete,
    /// The record violates the format.
    Malformed(String),
}

/// A section of a pcapng file: byte order and interfaces so far.
#[derive(Debug, Default)]
pub(super) struct Section {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: i64,
    snap_bytes: u32,
    /// Ticks a second.
    ticks: u128,
    offset_s: i64,
}

impl Section {
    /// Parses the block at the start of `bytes`.
    pub(super) fn record(&mut self, bytes: &[u8]) -> Result<Record, Bad> {
        let Section { big_endian, interfaces } = self;
        let Some(head) = bytes.first_chunk::<12>() else { return Err(Bad::Incomplete) };
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *head;
        let is_section = [a, b, c, d] == [0x0a, 0x0d, 0x0d, 0x0a];
        if is_section {
            // The section header declares its own byte order.
            *big_endian = match [i, j, k, l] {
                [0x1a, 0x2b, 0x3c, 0x4d] => true,
                [0x4d, 0x3c, 0x2b, 0x1a] => false,
                found => {
                    return Err(Bad::Malformed(format!("the byte-order magic is {found:02x?}")));
                }
            };
        }
        let block_bytes = read_u32([e, f, g, h], *big_endian) as usize;
        if !(12..=RECORD_BYTES_MAX).contains(&block_bytes) || !block_bytes.is_multiple_of(4) {
            return Err(Bad::Malformed(format!("a block of {block_bytes} bytes")));
        }
        let Some(block) = bytes.get(..block_bytes) else { return Err(Bad::Incomplete) };
        let parse = if *big_endian { parse_block_be } else { parse_block_le };
        let Ok((_, parsed)) = parse(block) else {
            let kind = read_u32([a, b, c, d], *big_endian);
            return Err(Bad::Malformed(format!(
                "a block of type {kind:#x} contradicts its length"
            )));
        };
        let mut note = None;
        let packet = match parsed {
            Block::SectionHeader(_) => {
                interfaces.clear();
                None
            }
            Block::InterfaceDescription(idb) => {
                if interfaces.len() == INTERFACES_MAX {
                    return Err(Bad::Malformed(format!("more than {INTERFACES_MAX} interfaces")));
                }
                interfaces.push(interface(&idb, *big_endian)?);
                None
            }
            Block::EnhancedPacket(epb) => {
                let its = known(interfaces, epb.if_id)?;
                let captured_bytes = epb.caplen as usize;
                if captured_bytes > epb.data.len() {
                    return Err(Bad::Malformed("a packet is longer than its block".to_owned()));
                }
                let ticks = u64::from(epb.ts_high) << 32 | u64::from(epb.ts_low);
                Some(Raw {
                    link: its.link,
                    stamp_ns: its.stamp_ns(ticks),
                    at: 28,
                    captured_bytes,
                    original_bytes: epb.origlen as usize,
                })
            }
            Block::SimplePacket(spb) => {
                let its = known(interfaces, 0)?;
                let snap = if its.snap_bytes == 0 { u32::MAX } else { its.snap_bytes };
                let captured_bytes = spb.data.len().min(spb.origlen.min(snap) as usize);
                Some(Raw {
                    link: its.link,
                    stamp_ns: 0,
                    at: 12,
                    captured_bytes,
                    original_bytes: spb.origlen as usize,
                })
            }
            Block::SystemdJournalExport(entry) => {
                note = Note::parse(entry.data);
                None
            }
            _ => None,
        };
        Ok(Record { bytes: block_bytes, packet, note })
    }
}

/// Parses the packet at the start of `bytes` of a pcap file.
pub(super) fn pcap(header: &PcapHeader, bytes: &[u8]) -> Result<Record, Bad> {
    let head_bytes = if header.is_modified_format() { 24 } else { 16 };
    let Some(head) = bytes.first_chunk::<16>() else { return Err(Bad::Incomplete) };
    let big = header.is_bigendian();
    let captured_bytes = read_u32([head[8], head[9], head[10], head[11]], big) as usize;
    if captured_bytes > RECORD_BYTES_MAX {
        return Err(Bad::Malformed(format!("a packet of {captured_bytes} bytes")));
    }
    let parse = match (header.is_modified_format(), big) {
        (true, _) => pcap_parser::parse_pcap_frame_modified,
        (false, true) => pcap_parser::parse_pcap_frame_be,
        (false, false) => pcap_parser::parse_pcap_frame,
    };
    let Ok((_, frame)) = parse(bytes) else { return Err(Bad::Incomplete) };
    let fraction = u64::from(frame.ts_usec);
    let fraction_ns =
        if header.is_nanosecond_precision() { fraction } else { fraction.saturating_mul(1000) };
    Ok(Record {
        bytes: head_bytes + frame.data.len(),
        packet: Some(Raw {
            // The upper bits are the length of the frame check sequence.
            link: i64::from(header.network.0 & 0xffff),
            stamp_ns: u64::from(frame.ts_sec) * 1_000_000_000 + fraction_ns,
            at: head_bytes,
            captured_bytes: frame.data.len(),
            original_bytes: frame.origlen as usize,
        }),
        note: None,
    })
}

fn read_u32(bytes: [u8; 4], big_endian: bool) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

fn known(interfaces: &[Interface], id: u32) -> Result<Interface, Bad> {
    interfaces.get(id as usize).copied().ok_or_else(|| {
        Bad::Malformed(format!(
            "a packet of interface {id}, but {} are described",
            interfaces.len()
        ))
    })
}

/// Reads resolution and offset from the options. `pcap-parser` supports neither powers of two nor
/// big-endian offsets.
fn interface(idb: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Result<Interface, Bad> {
    let option = |code| idb.options.iter().find(|o| o.code == code).and_then(|o| o.as_bytes().ok());
    let ticks = match option(OptionCode::IfTsresol).and_then(|value| value.first()) {
        None => 1_000_000,
        Some(exponent @ 0..=19) => 10u128.pow(u32::from(*exponent)),
        Some(binary @ 0x80..=0xbf) => 1 << (binary & 0x7f),
        Some(other) => return Err(Bad::Malformed(format!("a time resolution of {other:#x}"))),
    };
    let offset_s =
        option(OptionCode::IfTsoffset).and_then(|value| value.first_chunk()).map_or(0, |bytes| {
            if big_endian { i64::from_be_bytes(*bytes) } else { i64::from_le_bytes(*bytes) }
        });
    let link = i64::from(idb.linktype.0);
    Ok(Interface { link, snap_bytes: idb.snaplen, ticks, offset_s })
}

impl Interface {
    fn stamp_ns(&self, ticks: u64) -> u64 {
        let since = u128::from(ticks) * 1_000_000_000 / self.ticks;
        let stamp = i128::try_from(since).unwrap_or(i128::MAX);
        let stamp = stamp.saturating_add(i128::from(self.offset_s) * 1_000_000_000);
        u64::try_from(stamp.max(0)).unwrap_or(u64::MAX)
    }
}
