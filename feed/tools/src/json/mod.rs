//! Telegrams and ITCH messages as JSON lines: one object each, errors as objects too.
//!
//! Prices are exact decimals in strings; quantities, sequences and offsets are numbers. `packet`
//! and `offset` give the position of a message in the file.

mod itch;
mod twse;

use std::io::{self, Write};
use std::net::SocketAddrV4;

use market::itch::{self as messages, ItchError};
use market::mold;
use market::twse::Telegrams;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::capture::Datagram;
use super::protocol::{CaptureFlows, Protocol, Recognised};

/// Format of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Detected by the structure of the datagrams to each destination.
    #[default]
    Auto,
    /// Given for all datagrams.
    Given(Protocol),
}

/// Counts of written objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams, or runs of telegrams.
    pub datagrams: u64,
    /// Decoded messages.
    pub messages: u64,
    /// Heartbeats and ends of sessions.
    pub events: u64,
    /// Messages in MoldUDP64 that are not of ITCH 5.0, written with their body.
    pub bodies: u64,
    /// Objects for malformed input.
    pub errors: u64,
    /// Datagrams of another protocol.
    pub foreign: u64,
}

impl Counts {
    /// True if something of the protocols was found.
    pub fn has_content(&self) -> bool {
        self.messages + self.events + self.bodies > 0
    }
}

/// Decoder of datagrams to JSON lines.
#[derive(Debug)]
pub struct Decoder<W> {
    output: W,
    format: Format,
    flows: CaptureFlows,
    counts: Counts,
    line: Vec<u8>,
}

impl<W: Write> Decoder<W> {
    /// A decoder that writes to `output`, which should be buffered.
    pub fn new(output: W, format: Format) -> Self {
        let (flows, counts) = (CaptureFlows::default(), Counts::default());
        Decoder { output, format, flows, counts, line: Vec::with_capacity(4096) }
    }

    /// Counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Writes the messages of a datagram, one object per line.
    pub fn datagram(&mut self, datagram: &Datagram<'_>) -> io::Result<()> {
        self.counts.datagrams += 1;
        let recognised = match self.format {
            Format::Given(protocol) => Recognised::As(protocol),
            Format::Auto => self.flows.recognise(datagram.destination, datagram.payload),
        };
        match recognised {
            Recognised::As(Protocol::Mold) => self.mold(datagram),
            Recognised::As(Protocol::Twse) => self.twse(datagram),
            Recognised::Foreign { is_first } => {
                self.counts.foreign += 1;
                if is_first { self.foreign(datagram) } else { Ok(()) }
            }
        }
    }

    /// Description of the datagrams of another protocol; `None` if there are none.
    pub fn foreign_text(&self) -> Option<String> {
        self.flows.foreign_text()
    }

    /// Writes the first datagram of another protocol to its destination as an object.
    fn foreign(&mut self, datagram: &Datagram<'_>) -> io::Result<()> {
        const BEGIN_BYTES: usize = 16;
        let begin = &datagram.payload[..datagram.payload.len().min(BEGIN_BYTES)];
        let context = Context::new(datagram, 0);
        self.object(|map| {
            map.serialize_entry("error", "protocol")?;
            let message = "neither telegrams of the Taiwan exchanges nor MoldUDP64; further such datagrams \
                           to this destination are counted";
            map.serialize_entry("message", message)?;
            map.serialize_entry("begin", &hex(begin))?;
            context.entries(map)
        })
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
                    let context = Context::new(datagram, telegram.offset());
                    self.object(|map| {
                        twse::telegram(map, &telegram)?;
                        context.entries(map)
                    })?;
                }
                Err(error) => {
                    self.counts.errors += 1;
                    let context = Context::new(datagram, error.offset);
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
        let packet = match mold::MoldPacket::parse(datagram.payload) {
            Ok(packet) => packet,
            Err(error) => return self.malformed(datagram, "mold", &error, error.offset()),
        };
        let header = packet.header();
        let session = session_name(&header.session);
        if header.message_count() == 0 {
            self.counts.events += 1;
            let context = Context::new(datagram, 0);
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
                    let context = Context::new(datagram, message.offset);
                    self.object(|map| {
                        map.serialize_entry("session", &session)?;
                        map.serialize_entry("sequence", &message.sequence)?;
                        itch::message(map, &parsed)?;
                        context.entries(map)
                    })?;
                }
                Err(error) => {
                    let context = Context::new(datagram, message.offset);
                    let is_malformed =
                        matches!(error, ItchError::Side { .. } | ItchError::Stock { .. });
                    let count = if is_malformed {
                        &mut self.counts.errors
                    } else {
                        &mut self.counts.bodies
                    };
                    *count += 1;
                    self.object(|map| {
                        map.serialize_entry("session", &session)?;
                        map.serialize_entry("sequence", &message.sequence)?;
                        if is_malformed {
                            map.serialize_entry("error", "itch")?;
                            map.serialize_entry("message", &error.to_string())?;
                        } else {
                            map.serialize_entry("undecoded", &error.to_string())?;
                        }
                        map.serialize_entry("body", &hex(message.bytes))?;
                        context.entries(map)
                    })?;
                }
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
        let context = Context::new(datagram, offset);
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
    fn new(datagram: &Datagram<'_>, offset: usize) -> Self {
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

/// Name of a session, empty if it is of zeros.
fn session_name(session: &mold::MoldSession) -> String {
    let end = session.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    text(&session.0[..end]).into_owned()
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
