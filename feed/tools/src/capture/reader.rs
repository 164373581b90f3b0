//! Reads UDP payloads from a capture, or telegrams from a file of bare telegrams.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddrV4;
use std::path::Path;

use market::twse;
use pcap_parser::PcapHeader;

use super::CaptureError;
use super::input::{InflatesTooMuch, Input};
use super::link::{self, Found};
use super::record::{Bad, Raw, Record, Section, pcap};
use super::source::Source;
use crate::late::LateReport;

/// Format of a file, from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptureKind {
    /// The format of libpcap, in any of its variants.
    Pcap,
    /// pcapng.
    PcapNg,
    /// TWSE or TPEx telegrams without any framing.
    Telegrams,
}

/// A UDP payload, or a run of telegrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Number of the packet in the file, from 1, counting packets without UDP; in a file of
    /// telegrams the number of the run.
    pub number: u64,
    /// Offset of the payload in the file.
    pub offset: u64,
    /// Capture time, nanoseconds since 1970 UTC; `None` in a file of telegrams.
    pub stamp_ns: Option<u64>,
    /// Sender; `None` in a file of telegrams.
    pub source: Option<SocketAddrV4>,
    /// Receiver; `None` in a file of telegrams.
    pub destination: Option<SocketAddrV4>,
    pub payload: &'a [u8],
}

/// Counts of packets read. All but `datagrams` were skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets, or runs of telegrams.
    pub packets: u64,
    pub datagrams: u64,
    /// Fragments of IPv4 datagrams.
    pub fragments: u64,
    /// Not IPv4.
    pub not_ipv4: u64,
    /// IPv4 but not UDP.
    pub not_udp: u64,
    /// Truncated by the snapshot length.
    pub cut: u64,
    pub malformed: u64,
    pub unknown_link: u64,
}

impl Counts {
    /// True if every packet is counted exactly once.
    pub fn balances(&self) -> bool {
        self.packets
            == self.datagrams
                + self.fragments
                + self.not_ipv4
                + self.not_udp
                + self.cut
                + self.malformed
                + self.unknown_link
    }
}

/// An open capture.
#[derive(Debug)]
pub struct Reader<R> {
    file: String,
    source: Source<R>,
    format: Format,
    counts: Counts,
    is_over: bool,
    has_reported_link: bool,
    late: Option<LateReport>,
}

#[derive(Debug)]
enum Format {
    Pcap { header: PcapHeader },
    PcapNg(Section),
    Telegrams,
}

impl Reader<File> {
    /// Opens a file and detects its format.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let file = path.display().to_string();
        match File::open(path) {
            Ok(input) => Reader::new(file, input),
            Err(source) => Err(CaptureError::Open { file, source }),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Detects the format of an input.
    ///
    /// - `file`: its name in errors.
    pub fn new(file: impl Into<String>, input: R) -> Result<Self, CaptureError> {
        Reader::begin(file.into(), input, false)
    }

    /// [`Reader::new`], but any input that is not a capture is read as telegrams.
    pub fn or_telegrams(file: impl Into<String>, input: R) -> Result<Self, CaptureError> {
        Reader::begin(file.into(), input, true)
    }

    fn begin(file: String, input: R, or_telegrams: bool) -> Result<Self, CaptureError> {
        let input = Input::begin(input).map_err(|e| CaptureError::Read {
            file: file.clone(),
            packets: 0,
            offset: 0,
            source: e,
        })?;
        let mut source = Source::new(input);
        let filled = source.fill(4);
        filled.map_err(|e| read_error(&file, &source, 0, e))?;
        let format = match *source.bytes() {
            [] => return Err(CaptureError::Empty { file }),
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Format::PcapNg(Section::default()),
            [0xd4, 0xc3, 0xb2, 0xa1, ..]
            | [0x4d, 0x3c, 0xb2, 0xa1, ..]
            | [0x34, 0xcd, 0xb2, 0xa1, ..]
            | [0xa1, 0xb2, 0xc3, 0xd4, ..]
            | [0xa1, 0xb2, 0x3c, 0x4d, ..] => return Reader::begin_pcap(file, source),
            _ if or_telegrams => Format::Telegrams,
            _ => {
                let filled = source.fill(twse::HEADER_BYTES);
                filled.map_err(|e| read_error(&file, &source, 0, e))?;
                if !twse::has_header(source.bytes()) {
                    return Err(not_a_capture(file, source.bytes()));
                }
                Format::Telegrams
            }
        };
        Ok(Reader::with(file, source, format))
    }

    fn with(file: String, source: Source<R>, format: Format) -> Self {
        let counts = Counts::default();
        Reader {
            file,
            source,
            format,
            counts,
            is_over: false,
            has_reported_link: false,
            late: None,
        }
    }

    fn begin_pcap(file: String, mut source: Source<R>) -> Result<Self, CaptureError> {
        const HEADER_BYTES: usize = 24;
        let filled = source.fill(HEADER_BYTES);
        let is_there = filled.map_err(|e| read_error(&file, &source, 0, e))?;
        if !is_there {
            let end = source.end_offset();
            return Err(CaptureError::Truncated { file, number: 0, offset: 0, end });
        }
        match pcap_parser::parse_pcap_header(source.bytes()) {
            Ok((_, header)) => {
                source.consume(header.size());
                Ok(Reader::with(file, source, Format::Pcap { header }))
            }
            Err(_) => {
                let what = "the file header is not a pcap header".to_owned();
                Err(CaptureError::Malformed { file, number: 0, offset: 0, what })
            }
        }
    }

    /// Format of the file.
    pub fn kind(&self) -> CaptureKind {
        match self.format {
            Format::Pcap { .. } => CaptureKind::Pcap,
            Format::PcapNg(_) => CaptureKind::PcapNg,
            Format::Telegrams => CaptureKind::Telegrams,
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Late datagrams that are noted up to here; `None` if the recording did not look for them.
    pub fn late(self) -> Option<LateReport> {
        self.late
    }

    /// The next datagram; `None` at the end.
    ///
    /// Errors: reading can continue after [`CaptureError::Link`]; any other error is final.
    pub fn next_datagram(&mut self) -> Result<Option<Datagram<'_>>, CaptureError> {
        if self.is_over {
            return Ok(None);
        }
        if matches!(self.format, Format::Telegrams) {
            return self.next_run();
        }
        loop {
            let Some(raw) = self.next_packet()? else { return Ok(None) };
            let number = self.counts.packets;
            let base = raw.at;
            let packet = self.source.at(base, base + raw.captured_bytes);
            // File offset of the packet; `source.offset()` is that of the byte after its record.
            let offset = self.source.offset() - (self.source.place() - base) as u64;
            match link::find(raw.link, packet, raw.original_bytes) {
                Found::Datagram { source, destination, payload } => {
                    self.counts.datagrams += 1;
                    return Ok(Some(Datagram {
                        number,
                        offset: offset + payload.start as u64,
                        stamp_ns: Some(raw.stamp_ns),
                        source: Some(source),
                        destination: Some(destination),
                        payload: self.source.at(base + payload.start, base + payload.end),
                    }));
                }
                Found::Fragment => self.counts.fragments += 1,
                Found::NotIpv4 => self.counts.not_ipv4 += 1,
                Found::NotUdp => self.counts.not_udp += 1,
                Found::Cut => self.counts.cut += 1,
                Found::Malformed => self.counts.malformed += 1,
                Found::UnknownLink => {
                    self.counts.unknown_link += 1;
                    if !std::mem::replace(&mut self.has_reported_link, true) {
                        let file = self.file.clone();
                        return Err(CaptureError::Link { file, number, offset, link: raw.link });
                    }
                }
            }
        }
    }

    /// Consumes and counts the next packet of a capture.
    fn next_packet(&mut self) -> Result<Option<Raw>, CaptureError> {
        loop {
            let parsed = match &mut self.format {
                Format::Pcap { header } => pcap(header, self.source.bytes()),
                Format::PcapNg(section) => section.record(self.source.bytes()),
                Format::Telegrams => return Ok(None),
            };
            match parsed {
                Ok(Record { bytes, packet, note }) => {
                    let place = self.source.place();
                    self.source.consume(bytes);
                    if let Some(note) = note {
                        self.late.get_or_insert_default().add_note(note);
                    }
                    if let Some(raw) = packet {
                        self.counts.packets += 1;
                        return Ok(Some(Raw { at: place + raw.at, ..raw }));
                    }
                }
                Err(Bad::Incomplete) => {
                    let more = self.source.more();
                    if more.map_err(|e| self.failed(e))? {
                        continue;
                    }
                    self.is_over = true;
                    if self.source.bytes().is_empty() {
                        return Ok(None);
                    }
                    return Err(CaptureError::Truncated {
                        file: self.file.clone(),
                        number: self.counts.packets + 1,
                        offset: self.source.offset(),
                        end: self.source.end_offset(),
                    });
                }
                Err(Bad::Malformed(what)) => {
                    self.is_over = true;
                    return Err(CaptureError::Malformed {
                        file: self.file.clone(),
                        number: self.counts.packets + 1,
                        offset: self.source.offset(),
                        what,
                    });
                }
            }
        }
    }

    fn failed(&mut self, source: std::io::Error) -> CaptureError {
        self.is_over = true;
        read_error(&self.file, &self.source, self.counts.packets, source)
    }

    /// The next run of telegrams, cut at the end of a telegram.
    fn next_run(&mut self) -> Result<Option<Datagram<'_>>, CaptureError> {
        const RUN_BYTES: usize = 64 << 10;
        let filled = self.source.fill(RUN_BYTES + 2 * twse::MAX_BYTES);
        let is_all = !filled.map_err(|e| self.failed(e))?;
        let bytes = self.source.bytes();
        if bytes.is_empty() {
            self.is_over = true;
            return Ok(None);
        }
        let run_bytes = if is_all && bytes.len() <= RUN_BYTES {
            bytes.len()
        } else {
            cut(&bytes[..bytes.len().min(RUN_BYTES + twse::MAX_BYTES)], RUN_BYTES)
        };
        let (offset, place) = (self.source.offset(), self.source.place());
        self.source.consume(run_bytes);
        self.counts.packets += 1;
        self.counts.datagrams += 1;
        Ok(Some(Datagram {
            number: self.counts.packets,
            offset,
            stamp_ns: None,
            source: None,
            destination: None,
            payload: self.source.at(place, place + run_bytes),
        }))
    }
}

/// An error of reading the input, after `packets` packets.
fn read_error<R: Read>(
    file: &str,
    input: &Source<R>,
    packets: u64,
    source: std::io::Error,
) -> CaptureError {
    let file = file.to_owned();
    if !input.is_gzip() {
        return CaptureError::Read { file, packets, offset: input.end_offset(), source };
    }
    if let Some(why) = source.get_ref().and_then(|why| why.downcast_ref::<InflatesTooMuch>()) {
        let InflatesTooMuch { compressed_bytes, inflated_bytes } = *why;
        return CaptureError::GzipTooMuch { file, compressed_bytes, inflated_bytes };
    }
    match source.kind() {
        std::io::ErrorKind::UnexpectedEof => CaptureError::GzipTorn { file, packets },
        _ => CaptureError::GzipDamaged { file, packets, source },
    }
}

/// The error of a file that begins with these bytes.
fn not_a_capture(file: String, bytes: &[u8]) -> CaptureError {
    let (format, tool) = match *bytes {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "unzstd"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("xz", "unxz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => ("bzip2", "bunzip2"),
        [0x04, 0x22, 0x4d, 0x18, ..] => ("lz4", "unlz4"),
        [b'P', b'K', 3, 4, ..] => ("zip", "unzip"),
        [0x1f, 0x8b, ..] => ("gzip, twice", "gunzip"),
        _ => {
            let found = bytes[..bytes.len().min(8)].to_vec();
            return CaptureError::Unknown { file, found };
        }
    };
    CaptureError::Compressed { file, format, tool }
}

/// Offset at about `target` at which to cut telegrams: the end of a telegram.
fn cut(bytes: &[u8], target: usize) -> usize {
    let mut telegrams = twse::Telegrams::new(bytes);
    let mut end = 0;
    for telegram in telegrams.by_ref() {
        // Malformed bytes end where the next telegram starts.
        let Ok(telegram) = telegram else { continue };
        if telegram.offset() >= target {
            return telegram.offset();
        }
        end = telegram.offset() + telegram.bytes().len();
    }
    match end {
        // A telegram that starts before this offset would be whole.
        0 => bytes.len().saturating_sub(twse::MAX_BYTES).max(1),
        end => end,
    }
}
