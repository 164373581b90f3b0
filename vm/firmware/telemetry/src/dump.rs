//! Datagrams that carry counters and trace out of the firmware. Big-endian throughout.
//!
//! A request is 8 bytes: `WPGQ`, version 1, kind ([`DumpKind`]), and a token of 2 bytes that the
//! answers repeat. Each answer starts with 16 bytes: `WPGA`, version, kind, token, part number,
//! number of parts, number of items, 2 zeros. Items follow: counters of 8 bytes in the order of
//! [`Counter::ALL`](crate::Counter::ALL); trace entries of 16 bytes: time in nanoseconds (8),
//! event (2), zeros (2), detail (4), oldest first.

use core::fmt;

use crate::{COUNTERS, Entry, Snapshot, TRACE_ENTRIES};

/// UDP port for requests.
pub const PORT: u16 = 7001;
pub const REQUEST_BYTES: usize = 8;
/// Bytes before the items of an answer.
pub const HEADER_BYTES: usize = 16;
/// Maximum trace entries per answer.
pub const ENTRIES_MAX: usize = 64;
pub const ANSWER_BYTES_MAX: usize = HEADER_BYTES + ENTRIES_MAX * ENTRY_BYTES;

const REQUEST: [u8; 4] = *b"WPGQ";
const ANSWER: [u8; 4] = *b"WPGA";
const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 16;

const _: () = assert!(COUNTERS * 8 <= ENTRIES_MAX * ENTRY_BYTES && ANSWER_BYTES_MAX <= 1472);

/// Requested contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DumpKind {
    /// All counters, in one answer.
    Counters = 1,
    /// The trace ring, in several answers.
    Trace = 2,
}

/// Asks for a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub kind: DumpKind,
    /// Repeated by the answers.
    pub token: u16,
}

/// Reason why bytes are not a valid request or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpError {
    /// Truncated.
    Short { needed_bytes: usize, had_bytes: usize },
    /// Wrong first four bytes.
    Magic([u8; 4]),
    /// Unsupported version of the format.
    Version(u8),
    /// Unknown [`DumpKind`].
    Kind(u8),
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DumpError::Short { needed_bytes, had_bytes } => {
                write!(f, "the dump needs {needed_bytes} bytes, but only {had_bytes} arrived")
            }
            DumpError::Magic(found) => write!(f, "not a dump: it starts with {found:02x?}"),
            DumpError::Version(found) => {
                write!(f, "the dump has version {found}, expected {VERSION}")
            }
            DumpError::Kind(found) => write!(f, "unknown kind of dump: {found}"),
        }
    }
}

impl core::error::Error for DumpError {}

fn opening(
    bytes: &[u8],
    magic: [u8; 4],
    needed_bytes: usize,
) -> Result<(DumpKind, u16), DumpError> {
    let had_bytes = bytes.len();
    let short = DumpError::Short { needed_bytes, had_bytes };
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or(short)?;
    let [m0, m1, m2, m3, version, kind, t0, t1] = *head;
    if [m0, m1, m2, m3] != magic {
        return Err(DumpError::Magic([m0, m1, m2, m3]));
    }
    if version != VERSION {
        return Err(DumpError::Version(version));
    }
    if rest.len() + 8 < needed_bytes {
        return Err(short);
    }
    let kind = match kind {
        1 => DumpKind::Counters,
        2 => DumpKind::Trace,
        other => return Err(DumpError::Kind(other)),
    };
    Ok((kind, u16::from_be_bytes([t0, t1])))
}

impl Request {
    pub fn parse(bytes: &[u8]) -> Result<Request, DumpError> {
        let (kind, token) = opening(bytes, REQUEST, REQUEST_BYTES)?;
        Ok(Request { kind, token })
    }

    pub fn bytes(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        write_opening(&mut bytes, REQUEST, *self);
        bytes
    }

    /// Number of answers needed for `entries` trace entries; at least one.
    pub fn trace_parts(entries: usize) -> u16 {
        entries.min(TRACE_ENTRIES).div_ceil(ENTRIES_MAX).max(1) as u16
    }
}

fn write_opening(bytes: &mut [u8], magic: [u8; 4], request: Request) {
    bytes[..4].copy_from_slice(&magic);
    bytes[4] = VERSION;
    bytes[5] = request.kind as u8;
    bytes[6..8].copy_from_slice(&request.token.to_be_bytes());
}

fn write_header(bytes: &mut [u8], request: Request, part: u16, parts: u16, items: usize) {
    write_opening(bytes, ANSWER, request);
    bytes[8..10].copy_from_slice(&part.to_be_bytes());
    bytes[10..12].copy_from_slice(&parts.to_be_bytes());
    bytes[12..14].copy_from_slice(&(items as u16).to_be_bytes());
    bytes[14..16].fill(0);
}

/// Writes the counters. Returns the length of the answer, or `None` if `bytes` is too short.
pub fn write_counters(bytes: &mut [u8], token: u16, snapshot: &Snapshot) -> Option<usize> {
    let len = HEADER_BYTES + 8 * COUNTERS;
    let bytes = bytes.get_mut(..len)?;
    write_header(bytes, Request { kind: DumpKind::Counters, token }, 0, 1, COUNTERS);
    for (slot, value) in bytes[HEADER_BYTES..].chunks_exact_mut(8).zip(snapshot.0) {
        slot.copy_from_slice(&value.to_be_bytes());
    }
    Some(len)
}

/// Writes one answer of a trace with up to [`ENTRIES_MAX`] of the next entries. Returns its
/// length, or `None` if `bytes` is too short.
pub fn write_trace(
    bytes: &mut [u8],
    token: u16,
    part: u16,
    parts: u16,
    entries: impl Iterator<Item = Entry>,
) -> Option<usize> {
    let bytes = bytes.get_mut(..ANSWER_BYTES_MAX)?;
    let mut items = 0;
    for (slot, entry) in bytes[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        slot[..8].copy_from_slice(&entry.time_ns.to_be_bytes());
        slot[8..10].copy_from_slice(&entry.event.to_be_bytes());
        slot[10..12].fill(0);
        slot[12..].copy_from_slice(&entry.detail.to_be_bytes());
        items += 1;
    }
    write_header(bytes, Request { kind: DumpKind::Trace, token }, part, parts, items);
    Some(HEADER_BYTES + items * ENTRY_BYTES)
}

/// A valid answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The request it answers.
    pub request: Request,
    /// Number of this answer, from 0.
    pub part: u16,
    /// Number of answers.
    pub parts: u16,
    items: &'a [u8],
}

impl<'a> Answer<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Answer<'a>, DumpError> {
        let (kind, token) = opening(bytes, ANSWER, HEADER_BYTES)?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let (part, parts, count) = (word(8), word(10), usize::from(word(12)));
        let item_bytes = if kind == DumpKind::Counters { 8 } else { ENTRY_BYTES };
        let needed_bytes = HEADER_BYTES + count * item_bytes;
        let items = bytes
            .get(HEADER_BYTES..needed_bytes)
            .ok_or(DumpError::Short { needed_bytes, had_bytes: bytes.len() })?;
        Ok(Answer { request: Request { kind, token }, part, parts, items })
    }

    /// The counters, or `None` if this is a trace. Counters unknown to an older firmware are 0.
    pub fn counters(&self) -> Option<Snapshot> {
        if self.request.kind != DumpKind::Counters {
            return None;
        }
        let mut values = [0; COUNTERS];
        for (value, bytes) in values.iter_mut().zip(self.items.as_chunks::<8>().0) {
            *value = u64::from_be_bytes(*bytes);
        }
        Some(Snapshot(values))
    }

    /// The trace entries; empty if this is a dump of counters.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + 'a {
        let items = if self.request.kind == DumpKind::Trace { self.items } else { &[] };
        items.as_chunks::<ENTRY_BYTES>().0.iter().map(|bytes| {
            let [t0, t1, t2, t3, t4, t5, t6, t7, e0, e1, _, _, d0, d1, d2, d3] = *bytes;
            Entry {
                time_ns: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
                event: u16::from_be_bytes([e0, e1]),
                detail: u32::from_be_bytes([d0, d1, d2, d3]),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_survives_encoding() {
        let request = Request { kind: DumpKind::Trace, token: 0xabcd };
        assert_eq!(request.bytes(), *b"WPGQ\x01\x02\xab\xcd");
        assert_eq!(Request::parse(&request.bytes()), Ok(request));
    }

    #[test]
    fn counters_survive_encoding() {
        let snapshot = Snapshot(core::array::from_fn(|index| index as u64 * 1_000_000_007));
        let mut bytes = [0xcc; ANSWER_BYTES_MAX];
        let len = write_counters(&mut bytes, 9, &snapshot).expect("it fits");
        let answer = Answer::parse(&bytes[..len]).expect("it is complete");
        assert_eq!((answer.request.token, answer.part, answer.parts), (9, 0, 1));
        assert_eq!(answer.counters(), Some(snapshot));
        assert_eq!(answer.entries().count(), 0);
        assert!(Answer::parse(&bytes[..len - 1]).is_err());
        assert_eq!(write_counters(&mut bytes[..len - 1], 9, &snapshot), None);
    }

    #[test]
    fn trace_survives_encoding_in_parts() {
        let all: Vec<Entry> = (0..150_u32)
            .map(|number| Entry { time_ns: u64::MAX - u64::from(number), event: 3, detail: number })
            .collect();
        let parts = Request::trace_parts(all.len());
        assert_eq!(parts, 3);
        let (mut entries, mut found) = (all.iter().copied(), Vec::new());
        for part in 0..parts {
            let mut bytes = [0; ANSWER_BYTES_MAX];
            let len = write_trace(&mut bytes, 1, part, parts, entries.by_ref()).expect("it fits");
            let answer = Answer::parse(&bytes[..len]).expect("it is complete");
            assert_eq!((answer.part, answer.parts, answer.counters()), (part, parts, None));
            found.extend(answer.entries());
        }
        assert_eq!(found, all);
    }

    #[test]
    fn corrupt_field_is_named() {
        let bytes = Request { kind: DumpKind::Counters, token: 0 }.bytes();
        let bent = |at: usize| {
            let mut bytes = bytes;
            bytes[at] ^= 0x40;
            Request::parse(&bytes)
        };
        assert_eq!(bent(0), Err(DumpError::Magic([b'W' ^ 0x40, b'P', b'G', b'Q'])));
        assert_eq!(bent(4), Err(DumpError::Version(0x41)));
        assert_eq!(bent(5), Err(DumpError::Kind(0x41)));
        let short = DumpError::Short { needed_bytes: 8, had_bytes: 7 };
        assert_eq!(Request::parse(&bytes[..7]), Err(short));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn hostile_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
            if bytes.len() > 4 {
                bytes[..5].copy_from_slice(b"WPGA\x01");
            }
            if let Ok(answer) = Answer::parse(&bytes) {
                let _ = answer.counters();
                let _ = answer.entries().count();
            }
        }
    }
}
