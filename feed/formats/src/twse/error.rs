//! Errors of telegrams.

use core::fmt;

use super::header::{MIN_BYTES, TERMINATOR};

/// A malformed telegram, and the position where parsing resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelegramError {
    /// Offset of the malformed bytes in the datagram.
    pub offset: usize,
    /// Bytes skipped from `offset`; the next telegram follows them.
    pub skipped_bytes: usize,
    /// Offset of the faulty field in the datagram.
    pub field_offset: usize,
    /// Fault found.
    pub fault: TelegramFault,
}

/// Reason that bytes are not a telegram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TelegramFault {
    /// No telegram starts here.
    Escape {
        /// Byte found instead of 0x1B.
        found: u8,
    },
    /// The datagram is shorter than the smallest telegram.
    Short {
        /// Bytes available, of at least 13.
        had_bytes: usize,
    },
    /// A nibble above 9 in a packed number.
    Digit {
        /// Field with the nibble.
        field: &'static str,
        /// Byte found.
        found: u8,
    },
    /// The declared length is below the smallest telegram or exceeds the datagram.
    Length {
        /// Declared length.
        declared_bytes: usize,
        /// Bytes available.
        had_bytes: usize,
    },
    /// The telegram does not end in 0D 0A.
    Terminator {
        /// Bytes found.
        found: [u8; 2],
    },
    /// The exclusive or of the bytes does not match.
    Checksum {
        /// Checksum of the bytes.
        expected: u8,
        /// Byte found.
        found: u8,
    },
    /// The length does not match the format or the number of levels.
    Size {
        /// Length of the format with these levels.
        expected_bytes: usize,
        /// Length of the telegram.
        found_bytes: usize,
    },
    /// More than five levels on a side.
    Levels {
        /// `bid` or `ask`.
        side: &'static str,
        /// Number of bytes.
        found: u8,
    },
    /// Marked as a trade without the book, but has levels.
    TradeOnly {
        /// Number of bids and asks.
        levels: u8,
    },
    /// The code contains a byte that is not printable ASCII.
    Symbol {
        /// Byte found.
        found: u8,
    },
    /// Neither a time of day nor the end-of-feed marker.
    Time {
        /// The field.
        found: [u8; 6],
    },
}

impl TelegramFault {
    /// Name of the fault in counters and records.
    pub const fn name(&self) -> &'static str {
        match self {
            TelegramFault::Escape { .. } => "escape",
            TelegramFault::Short { .. } => "short",
            TelegramFault::Digit { .. } => "digit",
            TelegramFault::Length { .. } => "length",
            TelegramFault::Terminator { .. } => "terminator",
            TelegramFault::Checksum { .. } => "checksum",
            TelegramFault::Size { .. } => "size",
            TelegramFault::Levels { .. } => "levels",
            TelegramFault::TradeOnly { .. } => "trade_only",
            TelegramFault::Symbol { .. } => "symbol",
            TelegramFault::Time { .. } => "time",
        }
    }
}

impl fmt::Display for TelegramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TelegramError { offset, field_offset: at, .. } = *self;
        match self.fault {
            TelegramFault::Escape { found } => {
                write!(f, "offset {offset} holds {found:#04x}, expected a telegram's 0x1b")?;
            }
            TelegramFault::Short { had_bytes } => write!(
                f,
                "the telegram at offset {offset} is cut off: {had_bytes} bytes are there, the \
                 smallest takes {MIN_BYTES}"
            )?,
            TelegramFault::Digit { field, found } => {
                write!(f, "{field} at offset {at} holds {found:#04x}, expected two decimal digits")?
            }
            TelegramFault::Length { declared_bytes, had_bytes } => write!(
                f,
                "the length at offset {at} is {declared_bytes} bytes, expected {MIN_BYTES} to the \
                 {had_bytes} that are there"
            )?,
            TelegramFault::Terminator { found: [a, b] } => write!(
                f,
                "the telegram at offset {offset} ends in {a:02x} {b:02x} at offset {at}, expected \
                 {:02x} {:02x}",
                TERMINATOR[0], TERMINATOR[1]
            )?,
            TelegramFault::Checksum { expected, found } => {
                write!(f, "the checksum at offset {at} is {found:#04x}, expected {expected:#04x}")?
            }
            TelegramFault::Size { expected_bytes, found_bytes } => write!(
                f,
                "the telegram at offset {offset} has {found_bytes} bytes, its format and levels \
                 take {expected_bytes}"
            )?,
            TelegramFault::Levels { side, found } => {
                write!(f, "{found} {side} levels at offset {at}, expected 0 to 5")?;
            }
            TelegramFault::TradeOnly { levels } => write!(
                f,
                "{levels} levels at offset {at} in a telegram that is marked as without a book"
            )?,
            TelegramFault::Symbol { found } => {
                write!(f, "the code holds {found:#04x} at offset {at}, expected printable ASCII")?
            }
            TelegramFault::Time { found: [a, b, c, d, e, g] } => write!(
                f,
                "the time at offset {at} is {a:02x}:{b:02x}:{c:02x}.{d:02x}{e:02x}{g:02x}, \
                 expected a time of day"
            )?,
        }
        Ok(())
    }
}

impl core::error::Error for TelegramError {}

/// Error of encoding a telegram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// The buffer is too small.
    Short {
        /// Bytes of the telegram.
        needed_bytes: usize,
        /// Bytes of the buffer.
        had_bytes: usize,
    },
    /// A number has more digits than its field.
    Number {
        /// The field.
        field: &'static str,
        /// The number.
        value: u64,
        /// Largest that fits.
        max: u64,
    },
    /// The decoder would refuse the telegram.
    Contradiction {
        /// Rule that is broken.
        why: &'static str,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EncodeError::Short { needed_bytes, had_bytes } => {
                write!(f, "the telegram takes {needed_bytes} bytes, the buffer has {had_bytes}")
            }
            EncodeError::Number { field, value, max } => {
                write!(f, "{field} is {value}, at most {max} fits")
            }
            EncodeError::Contradiction { why } => f.write_str(why),
        }
    }
}

impl core::error::Error for EncodeError {}
