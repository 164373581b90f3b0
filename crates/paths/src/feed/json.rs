//! Telegrams and ITCH messages as JSON lines: one object each, errors as objects too.
//!
//! Prices are exact decimals in strings; quantities, sequences and offsets are numbers. Where a
//! message lies is said by `packet` and `offset`, both of the file.

mod itch;
mod twse;

use std::io::{self, Write};
use std::net::SocketAddrV4;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use wire::twse::{ESCAPE, Telegrams};
use wire::{itch as messages, mold};

use super::capture::Datagram;

/// What the datagrams hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Each is looked at: telegrams begin with 0x1B, MoldUDP64 packets with a session in ASCII.
    #[default]
    Auto,
    /// TWSE and TPEx telegrams.
    Twse,
    /// ITCH 5.0 in MoldUDP64.
    Mold,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams, or runs of telegrams.
    pub datagrams: u64,
    /// Telegrams and messages.
    pub messages: u64,
    /// Objects that say what is malformed.
    pub errors: u64,
}

/// Turns datagrams into JSON lines.
#[derive(Debug)]
pub struct Decoder<W> {
    output: W,
    format: Format,
    counts: Counts,
    /// The object at hand.
    line: Vec<u8>,
}

impl<W: Write> Decoder<W> {
    /// A decoder that writes to `output`, which should be buffered.
    pub fn new(output: W, format: Format) -> Self {
        Decoder { output, format, counts: Counts::default(), line: Vec::with_capacity(4096) }
    }

    /// What was written so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Writes all that a datagram holds, one object a line.
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

    /// Hands on what is buffered.
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

    /// One object, and the end of its line.
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

/// An object that is being written.
type Map<'a> = <&'a mut serde_json::Serializer<&'a mut Vec<u8>> as Serializer>::SerializeMap;

/// Where a message lies; at the end of every object.
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

/// An entry only if there is a value.
fn some(
    map: &mut Map<'_>,
    key: &str,
    value: Option<impl Serialize>,
) -> Result<(), serde_json::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(key, &value))
}

/// Whether these look like a MoldUDP64 packet: its session in ASCII, and as many blocks as it
/// says, or no room for more.
fn is_mold(payload: &[u8]) -> bool {
    payload.first() != Some(&ESCAPE)
        && mold::Packet::parse(payload).is_ok_and(|packet| {
            packet.header().session.0.iter().all(|byte| matches!(byte, b' '..=b'~'))
                && packet.messages().next().is_none_or(|first| first.is_ok())
        })
}

/// Text of fixed width, without the spaces behind it.
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

/// Writes as a string what can be shown.
struct Shown<T>(T);

impl<T: std::fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
