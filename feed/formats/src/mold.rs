//! MoldUDP64: numbered messages in UDP datagrams, and requests for lost messages.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | 10 characters session | padded with spaces |
//! | 10 | u64 sequence | of the first message; with none, of the next |
//! | 18 | u16 count | messages; 0 a heartbeat, 0xFFFF the end of the session |
//! | 20 | blocks | one per message: u16 length, then the message |
//!
//! All big-endian. A request for lost messages is the same 20 bytes, sent to the server; the
//! reply is sent to the requesting socket.
//!
//! Source: Nasdaq, MoldUDP64 Protocol Specification, version 1.00.

use core::fmt;
use core::iter::FusedIterator;

use zerocopy::byteorder::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header, and of a request.
pub const HEADER_BYTES: usize = 20;
/// Bytes of a block before its message.
pub const BLOCK_BYTES: usize = 2;
/// Count of a packet that ends the session.
pub const END_OF_SESSION: u16 = 0xffff;
/// Most messages in a packet.
pub const MAX_COUNT: u16 = 0xfffe;

const COUNT_OFFSET: usize = 18;

/// Name of a session: ten bytes, usually text padded with spaces; zeros in historical feeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoldSession(pub [u8; 10]);

impl fmt::Display for MoldSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == [0; 10] {
            return f.write_str("zeros");
        }
        write!(f, "{}", self.0.trim_ascii_end().escape_ascii())
    }
}

/// The header of a packet, or a whole request, by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MoldHeader {
    /// Session that the sequence counts in.
    pub session: MoldSession,
    /// Number of the first message, from 1.
    pub sequence: u64,
    /// Messages in the packet, or wanted.
    pub count: u16,
}

impl MoldHeader {
    /// True for a heartbeat: no messages, only the next sequence number.
    #[inline]
    pub const fn is_heartbeat(&self) -> bool {
        self.count == 0
    }

    /// True if the session is over; the sequence is one above the last message's.
    #[inline]
    pub const fn is_end_of_session(&self) -> bool {
        self.count == END_OF_SESSION
    }

    /// Messages in the packet: none in a heartbeat, none at the end of the session.
    #[inline]
    pub const fn message_count(&self) -> u16 {
        if self.is_end_of_session() { 0 } else { self.count }
    }

    /// Number of the message after the packet's last.
    #[inline]
    pub const fn next_sequence(&self) -> u64 {
        self.sequence.wrapping_add(self.message_count() as u64)
    }

    /// Reads the header; bytes after it are ignored.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Result<MoldHeader, MoldError> {
        let (raw, _) = Raw::ref_from_prefix(datagram)
            .map_err(|_| MoldError::Short { had_bytes: datagram.len() })?;
        Ok(MoldHeader {
            session: MoldSession(raw.session),
            sequence: raw.sequence.get(),
            count: raw.count.get(),
        })
    }

    /// Reads a request, which is nothing but a header.
    pub fn parse_request(datagram: &[u8]) -> Result<MoldHeader, MoldError> {
        match datagram.len().checked_sub(HEADER_BYTES) {
            Some(left_bytes @ 1..) => Err(MoldError::Trailing { at: HEADER_BYTES, left_bytes }),
            _ => MoldHeader::parse(datagram),
        }
    }

    /// Writes the header, or the request, to the first [`HEADER_BYTES`] of `buffer`.
    ///
    /// Errors: the buffer is too short.
    #[inline]
    pub fn write(&self, buffer: &mut [u8]) -> Result<(), MoldError> {
        let had_bytes = buffer.len();
        let (raw, _) = Raw::mut_from_prefix(buffer).map_err(|_| MoldError::Short { had_bytes })?;
        *raw = Raw {
            session: self.session.0,
            sequence: U64::new(self.sequence),
            count: U16::new(self.count),
        };
        Ok(())
    }
}

/// Memory layout of the header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    session: [u8; 10],
    sequence: U64,
    count: U16,
}

/// Error of parsing or writing a MoldUDP64 packet. Offsets count from the start of the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoldError {
    /// Too short for the header.
    Short {
        /// Bytes that are there, of [`HEADER_BYTES`].
        had_bytes: usize,
    },
    /// A block exceeds the datagram; it and the blocks after it are lost.
    Block {
        /// Offset of the block.
        at: usize,
        /// Length of the block, as far as known.
        needed_bytes: usize,
        /// Bytes available.
        had_bytes: usize,
        /// Messages from this block on, by the header's count.
        lost_count: u16,
    },
    /// Bytes follow the last message.
    Trailing {
        /// Offset of the first extra byte.
        at: usize,
        /// Number of bytes.
        left_bytes: usize,
    },
    /// The message exceeds the buffer, the message count or the length field of a block.
    Full {
        /// Length of the message.
        message_bytes: usize,
        /// Free bytes in the packet.
        left_bytes: usize,
    },
}

impl MoldError {
    /// Offset of the error in the datagram.
    pub const fn offset(&self) -> usize {
        match *self {
            MoldError::Short { .. } | MoldError::Full { .. } => 0,
            MoldError::Block { at, .. } | MoldError::Trailing { at, .. } => at,
        }
    }
}

impl fmt::Display for MoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MoldError::Short { had_bytes } => write!(
                f,
                "the MoldUDP64 header at offset 0 takes {HEADER_BYTES} bytes, {had_bytes} are there"
            ),
            MoldError::Block { at, needed_bytes, had_bytes, lost_count } => write!(
                f,
                "the message block at offset {at} takes {needed_bytes} bytes, {had_bytes} are \
                 there; {lost_count} messages are lost"
            ),
            MoldError::Trailing { at, left_bytes } => {
                write!(f, "{left_bytes} bytes at offset {at} belong to no message")
            }
            MoldError::Full { message_bytes, left_bytes } => write!(
                f,
                "a message of {message_bytes} bytes does not fit into the {left_bytes} that are \
                 left in the packet"
            ),
        }
    }
}

impl core::error::Error for MoldError {}

/// A packet with a decoded header; [`MoldPacket::messages`] iterates over its messages.
#[derive(Debug, Clone, Copy)]
pub struct MoldPacket<'a> {
    header: MoldHeader,
    datagram: &'a [u8],
}

impl<'a> MoldPacket<'a> {
    /// The packet in a UDP payload.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<MoldPacket<'a>, MoldError> {
        Ok(MoldPacket { header: MoldHeader::parse(datagram)?, datagram })
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> MoldHeader {
        self.header
    }

    /// The messages in order.
    #[inline]
    pub fn messages(&self) -> Messages<'a> {
        Messages {
            datagram: self.datagram,
            offset: HEADER_BYTES,
            sequence: self.header.sequence,
            left_count: self.header.message_count(),
        }
    }
}

/// A message of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Sequence number in the session.
    pub sequence: u64,
    /// Offset of the message in the datagram.
    pub offset: usize,
    /// Content, possibly empty.
    pub bytes: &'a [u8],
}

/// The messages of a packet; an error is the last item.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    datagram: &'a [u8],
    offset: usize,
    sequence: u64,
    left_count: u16,
}

impl<'a> Messages<'a> {
    #[cold]
    fn end(&mut self) -> Option<Result<Message<'a>, MoldError>> {
        let at = core::mem::replace(&mut self.offset, self.datagram.len());
        let lost_count = core::mem::take(&mut self.left_count);
        let rest = self.datagram.get(at..).unwrap_or_default();
        if lost_count > 0 {
            let length = rest.first_chunk().map_or(0, |&bytes| u16::from_be_bytes(bytes));
            let needed_bytes = BLOCK_BYTES + usize::from(length);
            return Some(Err(MoldError::Block {
                at,
                needed_bytes,
                had_bytes: rest.len(),
                lost_count,
            }));
        }
        (!rest.is_empty()).then_some(Err(MoldError::Trailing { at, left_bytes: rest.len() }))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, MoldError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let found = self.datagram.get(self.offset..).and_then(|rest| {
            let (length, rest) = rest.split_first_chunk()?;
            rest.get(..usize::from(u16::from_be_bytes(*length)))
        });
        let Some(bytes) = found.filter(|_| self.left_count > 0) else { return self.end() };
        let message = Message { sequence: self.sequence, offset: self.offset + BLOCK_BYTES, bytes };
        self.offset = message.offset + bytes.len();
        self.sequence = self.sequence.wrapping_add(1);
        self.left_count -= 1;
        Some(Ok(message))
    }
}

impl FusedIterator for Messages<'_> {}

/// Builds a packet from messages.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    buffer: &'a mut [u8],
    header: MoldHeader,
    len_bytes: usize,
}

impl<'a> PacketWriter<'a> {
    /// Starts an empty packet whose first message has number `sequence`.
    ///
    /// - `buffer`: as long as the datagram may become.
    /// - Errors: the header does not fit.
    pub fn new(
        buffer: &'a mut [u8],
        session: MoldSession,
        sequence: u64,
    ) -> Result<PacketWriter<'a>, MoldError> {
        let header = MoldHeader { session, sequence, count: 0 };
        header.write(buffer)?;
        Ok(PacketWriter { buffer, header, len_bytes: HEADER_BYTES })
    }

    /// Appends a message.
    ///
    /// Errors: the message does not fit; the packet is unchanged. Finish it and push the message
    /// to the next one.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Result<(), MoldError> {
        let left_bytes = self.left_bytes();
        let full = MoldError::Full { message_bytes: message.len(), left_bytes };
        let length = u16::try_from(message.len()).map_err(|_| full)?;
        let (prefix, rest) = self
            .buffer
            .get_mut(self.len_bytes..)
            .filter(|_| self.header.count < MAX_COUNT)
            .and_then(|free| free.split_first_chunk_mut())
            .ok_or(full)?;
        rest.get_mut(..message.len()).ok_or(full)?.copy_from_slice(message);
        *prefix = length.to_be_bytes();
        self.len_bytes += BLOCK_BYTES + message.len();
        self.header.count += 1;
        Ok(())
    }

    /// Messages so far.
    pub fn count(&self) -> u16 {
        self.header.count
    }

    /// Largest message that still fits.
    pub fn left_bytes(&self) -> usize {
        self.buffer.len().saturating_sub(self.len_bytes + BLOCK_BYTES)
    }

    /// Completes the header and returns the length of the datagram: a heartbeat if empty.
    pub fn finish(self) -> usize {
        if let Some(count) = self.buffer.get_mut(COUNT_OFFSET..HEADER_BYTES) {
            count.copy_from_slice(&self.header.count.to_be_bytes());
        }
        self.len_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const SESSION: MoldSession = MoldSession(*b"000012345A");
    const PACKET: [u8; 29] = *b"000012345A\0\0\0\0\0\0\x01\x02\0\x03\0\x01S\0\0\0\x02DE";

    #[test]
    fn known_bytes_decode_to_the_known_packet() {
        let packet = MoldPacket::parse(&PACKET).expect("it is whole");
        assert_eq!(packet.header(), MoldHeader { session: SESSION, sequence: 0x102, count: 3 });
        assert_eq!(packet.header().next_sequence(), 0x105);
        assert_eq!(packet.header().session.to_string(), "000012345A");
        let messages: Vec<_> = packet.messages().map(|message| message.expect("whole")).collect();
        assert_eq!(
            messages,
            [
                Message { sequence: 0x102, offset: 22, bytes: b"S" },
                Message { sequence: 0x103, offset: 25, bytes: b"" },
                Message { sequence: 0x104, offset: 27, bytes: b"DE" },
            ]
        );
    }

    #[test]
    fn messages_encode_to_the_known_packet() {
        let mut buffer = [0xcc; 64];
        let mut writer = PacketWriter::new(&mut buffer, SESSION, 0x102).expect("it fits");
        for message in [&b"S"[..], b"", b"DE"] {
            writer.push(message).expect("it fits");
        }
        assert_eq!(writer.count(), 3);
        assert_eq!(writer.finish(), PACKET.len());
        assert_eq!(buffer[..PACKET.len()], PACKET);
        assert_eq!(buffer[PACKET.len()], 0xcc);
    }

    #[test]
    fn heartbeat_and_end_carry_no_message() {
        let mut bytes = [0; HEADER_BYTES];
        let heartbeat = MoldHeader { session: SESSION, sequence: 9, count: 0 };
        let end = MoldHeader { count: END_OF_SESSION, ..heartbeat };
        assert!(heartbeat.is_heartbeat() && !heartbeat.is_end_of_session());
        assert!(end.is_end_of_session() && !end.is_heartbeat());
        for header in [heartbeat, end] {
            header.write(&mut bytes).expect("it fits");
            let packet = MoldPacket::parse(&bytes).expect("it is whole");
            assert_eq!((packet.header(), packet.messages().count()), (header, 0));
            assert_eq!(header.next_sequence(), 9);
        }
        let mut buffer = [0; 64];
        let writer = PacketWriter::new(&mut buffer, SESSION, 9).expect("it fits");
        assert_eq!(writer.finish(), HEADER_BYTES);
        assert_eq!(MoldHeader::parse(&buffer), Ok(heartbeat));
    }

    #[test]
    fn request_is_a_bare_header() {
        let request = MoldHeader { session: SESSION, sequence: 77, count: 12 };
        let mut bytes = [0; 21];
        request.write(&mut bytes).expect("it fits");
        assert_eq!(MoldHeader::parse_request(&bytes[..20]), Ok(request));
        let trailing = MoldError::Trailing { at: 20, left_bytes: 1 };
        assert_eq!(MoldHeader::parse_request(&bytes), Err(trailing));
        let short = MoldError::Short { had_bytes: 19 };
        assert_eq!(MoldHeader::parse_request(&bytes[..19]), Err(short));
        assert_eq!(MoldPacket::parse(&bytes[..19]).map(|_| ()), Err(short));
        assert_eq!(request.write(&mut bytes[..19]), Err(short));
    }

    #[test]
    fn truncated_block_is_one_error_with_the_lost_count() {
        for (cut, at, needed_bytes, lost_count) in
            [(28, 25, 4, 1), (26, 25, 2, 1), (25, 25, 2, 1), (22, 20, 3, 3), (20, 20, 2, 3)]
        {
            let packet = MoldPacket::parse(&PACKET[..cut]).expect("the header is there");
            let error = MoldError::Block { at, needed_bytes, had_bytes: cut - at, lost_count };
            let all: Vec<_> = packet.messages().collect();
            assert_eq!(all.len(), 4 - usize::from(lost_count));
            assert_eq!(all.last(), Some(&Err(error)));
            assert_eq!(error.offset(), at);
        }
    }

    #[test]
    fn bytes_after_the_last_message_are_one_error() {
        let mut bytes = PACKET;
        bytes[19] = 1;
        let all: Vec<_> = MoldPacket::parse(&bytes).expect("the header").messages().collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[1], Err(MoldError::Trailing { at: 23, left_bytes: 6 }));
    }

    #[test]
    fn message_that_does_not_fit_changes_nothing() {
        let mut buffer = [0; 29];
        let mut writer = PacketWriter::new(&mut buffer, SESSION, 1).expect("it fits");
        writer.push(b"four").expect("it fits");
        assert_eq!(writer.left_bytes(), 1);
        let full = MoldError::Full { message_bytes: 2, left_bytes: 1 };
        assert_eq!(writer.push(b"no"), Err(full));
        writer.push(b"y").expect("it fits");
        assert_eq!(writer.push(b""), Err(MoldError::Full { message_bytes: 0, left_bytes: 0 }));
        assert_eq!((writer.count(), writer.finish()), (2, 29));
        let mut large = vec![0; 70_000];
        let mut writer = PacketWriter::new(&mut large, SESSION, 1).expect("it fits");
        assert!(writer.push(&[0; 65_536]).is_err());
        assert!(writer.push(&[0; 65_535]).is_ok());
    }

    #[test]
    fn message_count_never_reaches_the_end_of_session_value() {
        let mut buffer = vec![0; 200_000];
        let mut writer = PacketWriter::new(&mut buffer, SESSION, 1).expect("it fits");
        for _ in 0..MAX_COUNT {
            writer.push(b"").expect("it fits");
        }
        assert!(writer.push(b"").is_err());
        let len = writer.finish();
        let packet = MoldPacket::parse(&buffer[..len]).expect("it is whole");
        assert_eq!(packet.messages().count(), usize::from(MAX_COUNT));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn packets_survive_the_wire(
            session: [u8; 10],
            sequence: u64,
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let mut buffer = [0; 1000];
            let mut writer = PacketWriter::new(&mut buffer, MoldSession(session), sequence)
                .expect("it fits");
            for message in &messages {
                writer.push(message).expect("it fits");
            }
            let len = writer.finish();
            let packet = MoldPacket::parse(&buffer[..len]).expect("it is whole");
            let found: Vec<Vec<u8>> = packet
                .messages()
                .map(|message| message.expect("it is whole").bytes.to_vec())
                .collect();
            prop_assert_eq!(found, messages);
        }
    }
}
