//! The probe's own header, at the start of every UDP payload that Wirepath sends.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | u16 magic | 0x5750, "WP" |
//! | 2 | u8 kind | [`Kind`] |
//! | 3 | u8 flow | |
//! | 4 | u32 session | random per run: identifies stray datagrams |
//! | 8 | u32 sequence | per flow, wraps |
//! | 12 | u32 reply | sequence of replies, set by the echoing end, wraps |
//! | 16 | u64 time_ns | CLOCK_MONOTONIC of the sender |
//!
//! All big-endian; padding follows. `sequence` and `reply` are separate so that loss, duplication
//! and reordering are known for each direction.

use core::fmt;

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "WP".
pub const MAGIC: u16 = 0x5750;
/// The table above, without the padding.
pub const HEADER_BYTES: usize = 24;
/// [`MAGIC`], 2 bytes.
pub const MAGIC_OFFSET: usize = 0;
/// [`Kind`], 1 byte.
pub const KIND_OFFSET: usize = 2;
/// Number of the flow, 1 byte.
pub const FLOW_OFFSET: usize = 3;
/// Random number of the run, 4 bytes.
pub const SESSION_OFFSET: usize = 4;
/// Number of the datagram in its flow, 4 bytes.
pub const SEQUENCE_OFFSET: usize = 8;
/// Number of the reply at the echoing end, 4 bytes.
pub const REPLY_OFFSET: usize = 12;
/// Nanoseconds of the sender's CLOCK_MONOTONIC, 8 bytes.
pub const TIME_OFFSET: usize = 16;

/// Purpose of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// One-way data without a reply.
    Data = 1,
    /// Requests a [`Kind::Pong`].
    Ping = 2,
    /// Reply to a ping: identical except for kind and reply.
    Pong = 3,
    /// The sender is done; `sequence` is the number of datagrams it sent on the flow.
    Stop = 4,
}

impl Kind {
    /// Kind with the number on the wire; `None` if unknown.
    pub fn from_wire(kind: u8) -> Option<Kind> {
        match kind {
            1 => Some(Kind::Data),
            2 => Some(Kind::Ping),
            3 => Some(Kind::Pong),
            4 => Some(Kind::Stop),
            _ => None,
        }
    }
}

/// Error of parsing a probe header. Offsets count from the start of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeError {
    /// Too short for the header.
    Short {
        /// Bytes available, of [`HEADER_BYTES`].
        had_bytes: usize,
    },
    /// The datagram of another program.
    Magic {
        /// Value found instead of [`MAGIC`].
        found: u16,
    },
    /// A probe of a kind that this version does not know.
    Kind {
        /// Kind found.
        found: u8,
    },
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ProbeError::Short { had_bytes } => write!(
                f,
                "the probe header at offset 0 takes {HEADER_BYTES} bytes, {had_bytes} are there"
            ),
            ProbeError::Magic { found } => {
                write!(f, "magic at offset {MAGIC_OFFSET} is {found:#06x}, expected {MAGIC:#06x}")
            }
            ProbeError::Kind { found } => write!(
                f,
                "kind at offset {KIND_OFFSET} is {found}, expected 1 to 4; is the other end of \
                 the same version?"
            ),
        }
    }
}

impl core::error::Error for ProbeError {}

/// The header, by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Purpose of the datagram.
    pub kind: Kind,
    /// Flow that the sequence counts in.
    pub flow: u8,
    /// Random number of the run.
    pub session: u32,
    /// Number of the datagram in its flow, from 0, wrapping.
    pub sequence: u32,
    /// Number of the reply in its flow, from 0, wrapping; 0 from the sender.
    pub reply: u32,
    /// Sender's CLOCK_MONOTONIC in nanoseconds; in an open-loop load the intended send time.
    pub time_ns: u64,
}

impl Header {
    /// Reads the header of a UDP payload; bytes after it are ignored.
    pub fn parse(payload: &[u8]) -> Result<Header, ProbeError> {
        let (raw, _) = Raw::ref_from_prefix(payload)
            .map_err(|_| ProbeError::Short { had_bytes: payload.len() })?;
        if raw.magic.get() != MAGIC {
            return Err(ProbeError::Magic { found: raw.magic.get() });
        }
        Ok(Header {
            kind: Kind::from_wire(raw.kind).ok_or(ProbeError::Kind { found: raw.kind })?,
            flow: raw.flow,
            session: raw.session.get(),
            sequence: raw.sequence.get(),
            reply: raw.reply.get(),
            time_ns: raw.time_ns.get(),
        })
    }

    /// Writes the header to the first [`HEADER_BYTES`] of `payload`, and nothing else.
    ///
    /// Errors: the buffer is too short.
    pub fn write(&self, payload: &mut [u8]) -> Result<(), ProbeError> {
        let had_bytes = payload.len();
        let (raw, _) =
            Raw::mut_from_prefix(payload).map_err(|_| ProbeError::Short { had_bytes })?;
        *raw = self.raw();
        Ok(())
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        zerocopy::transmute!(self.raw())
    }

    fn raw(&self) -> Raw {
        Raw {
            magic: U16::new(MAGIC),
            kind: self.kind as u8,
            flow: self.flow,
            session: U32::new(self.session),
            sequence: U32::new(self.sequence),
            reply: U32::new(self.reply),
            time_ns: U64::new(self.time_ns),
        }
    }
}

/// Memory layout of the header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U16,
    kind: u8,
    flow: u8,
    session: U32,
    sequence: U32,
    reply: U32,
    time_ns: U64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: [u8; 26] = [
        0x57, 0x50, 2, 7, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe, 0, 1, 2, 3,
        4, 5, 6, 7, 0xaa, 0xbb,
    ];
    const HEADER: Header = Header {
        kind: Kind::Ping,
        flow: 7,
        session: 0xdead_beef,
        sequence: 1,
        reply: 0xffff_fffe,
        time_ns: 0x0001_0203_0405_0607,
    };

    #[test]
    fn known_bytes_are_the_known_header() {
        assert_eq!(Header::parse(&BYTES), Ok(HEADER));
    }

    #[test]
    fn writing_leaves_the_filling_alone() {
        let mut bytes = [0xcc; 26];
        HEADER.write(&mut bytes).expect("it fits");
        assert_eq!(bytes[..HEADER_BYTES], BYTES[..HEADER_BYTES]);
        assert_eq!(bytes[HEADER_BYTES..], [0xcc, 0xcc]);
        assert_eq!(HEADER.to_bytes(), BYTES[..HEADER_BYTES]);
    }

    #[test]
    fn offsets_point_at_their_fields() {
        assert_eq!(core::mem::size_of::<Raw>(), HEADER_BYTES);
        assert_eq!(core::mem::offset_of!(Raw, magic), MAGIC_OFFSET);
        assert_eq!(core::mem::offset_of!(Raw, kind), KIND_OFFSET);
        assert_eq!(core::mem::offset_of!(Raw, flow), FLOW_OFFSET);
        assert_eq!(core::mem::offset_of!(Raw, session), SESSION_OFFSET);
        assert_eq!(core::mem::offset_of!(Raw, sequence), SEQUENCE_OFFSET);
        assert_eq!(core::mem::offset_of!(Raw, reply), REPLY_OFFSET);
        assert_eq!(core::mem::offset_of!(Raw, time_ns), TIME_OFFSET);
    }

    #[test]
    fn short_payload_says_how_short() {
        assert_eq!(Header::parse(&BYTES[..23]), Err(ProbeError::Short { had_bytes: 23 }));
        assert_eq!(HEADER.write(&mut [0; 23]), Err(ProbeError::Short { had_bytes: 23 }));
        assert_eq!(Header::parse(&[]), Err(ProbeError::Short { had_bytes: 0 }));
    }

    #[test]
    fn foreign_magic_and_unknown_kind_are_different_errors() {
        let mut bytes = BYTES;
        bytes[0] = 0;
        assert_eq!(Header::parse(&bytes), Err(ProbeError::Magic { found: 0x0050 }));
        for found in [0, 5, 255] {
            let mut bytes = BYTES;
            bytes[KIND_OFFSET] = found;
            assert_eq!(Header::parse(&bytes), Err(ProbeError::Kind { found }));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn header_survives_the_wire(
            kind in 1u8..=4, flow: u8, session: u32, sequence: u32, reply: u32, time_ns: u64,
        ) {
            let kind = Kind::from_wire(kind).expect("1 to 4 are known");
            let header = Header { kind, flow, session, sequence, reply, time_ns };
            prop_assert_eq!(Header::parse(&header.to_bytes()), Ok(header));
        }

        #[test]
        fn hostile_payload_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            crate::fuzzing::probe_header(&bytes);
        }
    }
}
