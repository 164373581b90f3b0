//! Telegrams and ITCH messages as JSON lines: one object each, errors as objects too.
//!
//! Prices are exact decimals in strings; quantities, sequences and offsets are numbers. `packet`
//! and `offset` give the position of a message in the file.

mod itch;
mod twse;

use std::io::{self, Write};
use std::net::SocketAddrV4;

use market::twse::{ESCAPE, Telegrams};
use market::{itch as messages, mold};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::capture::Datagram;

/// Format of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Detected per datagram: telegrams start with 0x1B, MoldUDP64 packets with an ASCII session.
    #[default]
    Auto,
    /// TWSE and TPEx telegrams.
    Twse,
    /// ITCH 5.0 in MoldUDP64.
    Mold,
}

/// Counts of written objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams, or runs of telegrams.
    pub datagrams: u64,
    pub messages: u64,
    /// Objects for malformed input.
    pub errors: u64,
}

/// Decoder of datagrams to JSON lines.
#[derive(Debug)]
pub struct Decoder<W> {
    output: W,
    format: Format,
    counts: Counts,
    line: Vec<u8>,
}

impl<W: Write> Decoder<W> {
    /// A decoder that writes to `output`, which should be buffered.
    pub fn new(output: W, format: Format) -> Self {
        Decoder { output, format, counts: Counts::default(), line: Vec::with_capacity(4096) }
    }

    /// Counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Writes the messages of a datagram, one object per line.
    pub fn datagram(&mut self, datagram: &Datagram<'_>) -> io::Result<()> {
        self.counts.datagrams += 1;
        let format = match self.format {
            Format::Auto if is_mold(datagram.payload) => Format::Mold,
            Format::Auto => Format::Twse,
            given => given,
        };
        match format {
            Format::Mold => self.mold(datagram),
            Format::Auto | Format::Twse => self.twse(datagram),
        }
    }

    /// Writes an error of the file itself as an object.
    pub fn error(&mut self, kind: &str, message: &str) -> io::Result<()> {
        self.counts.errors += 1;
        self.object(|map| {
            map.serialize_entry("error", kind)?;
            map.serialize_entry("message", message)
        })
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    fn twse(&mut self, datagram: &Datagram<'_>) -> io::Result<()> {
        for telegram in Telegrams::new(datagram.payload) {
            match telegram {
                Ok(telegram) => {
                    self.counts.messages += 1;
                    let context = Context::of(datagram, telegram.offset());
                    self.object(|map| {
                        twse::telegram(map, &telegram)?;
                        context.entries(map)
                    })?;
                }
                Err(error) => {
                    self.counts.errors += 1;
                    let context = Context::of(datagram, error.offset);
                    self.object(|map| {
                        map.serialize_entry("error", error.fault.name())?;
                        map.serialize_entry("message", &error.to_string())?;
                        let at = datagram.offset + error.field_offset as u64;
                        map.serialize_entry("field_offset", &at)?;
                        map.serialize_entry("skipped_bytes", &error.skipped_bytes)?;
                        context.entries(map)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn mold(&mut self, datagram: &Datagram<'_>) -> io::Result<()> {
        let packet = match mold::Packet::parse(datagram.payload) {
            Ok(packet) => packet,
            Err(error) => return self.malformed(datagram, "mold", &error, error.offset()),
        };
        let header = packet.header();
        let session = text(&header.session.0);
        if header.message_count() == 0 {
            let context = Context::of(datagram, 0);
            let event = if header.is_heartbeat() { "heartbeat" } else { "end_of_session" };
            self.object(|map| {
                map.serialize_entry("session", &session)?;
                map.serialize_entry("sequence", &header.sequence)?;
                map.serialize_entry("event", event)?;
                context.entries(map)
            })?;
        }
        for message in packet.messages() {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    self.malformed(datagram, "mold", &error, error.offset())?;
                    continue;
                }
            };
            match messages::Message::parse(message.bytes) {
                Ok(parsed) => {
                    self.counts.messages += 1;
                    let context = Context::of(datagram, message.offset);
                    self.object(|map| {
                        map.serialize_entry("session", &session)?;
                        map.serialize_entry("sequence", &message.sequence)?;
                        itch::message(map, &parsed)?;
                        context.entries(map)
                    })?;
                }
                Err(error) => self.malformed(datagram, "itch", &error, message.offset)?,
            }
        }
        Ok(())
    }

    fn malformed(
        &mut self,
        datagram: &Datagram<'_>,
        kind: &str,
        error: &dyn std::error::Error,
        offset: usize,
    ) -> io::Result<()> {
        self.counts.errors += 1;
        let context = Context::of(datagram, offset);
        self.object(|map| {
            map.serialize_entry("error", kind)?;
            map.serialize_entry("message", &error.to_string())?;
            context.entries(map)
        })
    }

    /// Writes one object and a line feed.
    fn object(
        &mut self,
        entries: impl FnOnce(&mut Map<'_>) -> Result<(), serde_json::Error>,
    ) -> io::Result<()> {
        self.line.clear();
        let mut serializer = serde_json::Serializer::new(&mut self.line);
        let mut map = serializer.serialize_map(None)?;
        entries(&mut map)?;
        map.end()?;
        self.line.push(b'\n');
        self.output.write_all(&self.line)
    }
}

/// An object under construction.
type Map<'a> = <&'a mut serde_json::Serializer<&'a mut Vec<u8>> as Serializer>::SerializeMap;

/// Position of a message, at the end of every object.
struct Context {
    packet: u64,
    offset: u64,
    captured_ns: Option<u64>,
    source: Option<SocketAddrV4>,
    destination: Option<SocketAddrV4>,
}

impl Context {
    fn of(datagram: &Datagram<'_>, offset: usize) -> Self {
        Context {
            packet: datagram.number,
            offset: datagram.offset + offset as u64,
            captured_ns: datagram.stamp_ns,
            source: datagram.source,
            destination: datagram.destination,
        }
    }

    fn entries(&self, map: &mut Map<'_>) -> Result<(), serde_json::Error> {
        map.serialize_entry("packet", &self.packet)?;
        map.serialize_entry("offset", &self.offset)?;
        some(map, "captured_ns", self.captured_ns)?;
        some(map, "source", self.source)?;
        some(map, "destination", self.destination)
    }
}

/// Writes an entry if there is a value.
fn some(
    map: &mut Map<'_>,
    key: &str,
    value: Option<impl Serialize>,
) -> Result<(), serde_json::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
}

/// True if the payload looks like a MoldUDP64 packet: an ASCII session, and either the declared
/// number of blocks or a truncated block.
fn is_mold(payload: &[u8]) -> bool {
    payload.first() != Some(&ESCAPE)
        && mold::Packet::parse(payload).is_ok_and(|packet| {
            packet.header().session.0.iter().all(|byte| matches!(byte, b' '..=b'~'))
                && packet.messages().next().is_none_or(|first| first.is_ok())
        })
}

/// Text of fixed width, without its trailing spaces.
fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes.trim_ascii_end())
}

/// Two digits a byte.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

/// Serializes a displayable value as a string.
struct Shown<T>(T);

impl<T: std::fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
