//! What can be wrong with a telegram.

use core::fmt;

use super::header::{MIN_BYTES, TERMINATOR};

/// A malformed telegram, and where the search for the next one goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelegramError {
    /// Where in the datagram the telegram starts, or whatever stands in its place.
    pub offset: usize,
    /// Bytes given up, from `offset`; the next telegram starts behind them.
    pub skipped_bytes: usize,
    /// Where in the datagram the faulty field is.
    pub field_offset: usize,
    /// What is wrong.
    pub fault: Fault,
}

/// Why bytes are not a telegram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No telegram starts here.
    Escape {
        /// What is there instead of 0x1B.
        found: u8,
    },
    /// The datagram ends before the smallest telegram would.
    Short {
        /// Bytes that are there, of the smallest telegram's 13.
        had_bytes: usize,
    },
    /// A nibble above 9 in a packed number.
    Digit {
        /// Field that holds it.
        field: &'static str,
        /// The byte.
        found: u8,
    },
    /// The declared length is smaller than any telegram, or passes the end of the datagram.
    Length {
        /// What the telegram says.
        declared_bytes: usize,
        /// Bytes that are there.
        had_bytes: usize,
    },
    /// The telegram does not end in 0D 0A.
    Terminator {
        /// What it ends in.
        found: [u8; 2],
    },
    /// The exclusive or of the bytes does not match.
    Checksum {
        /// What it would have to be.
        expected: u8,
        /// What is there.
        found: u8,
    },
    /// The format, or the number of levels, wants another length.
    Size {
        /// Length of such a telegram.
        expected_bytes: usize,
        /// Length of this one.
        found_bytes: usize,
    },
    /// More levels on a side than the five that there are.
    Levels {
        /// `bid` or `ask`.
        side: &'static str,
        /// How many.
        found: u8,
    },
    /// Marked as a trade without the book, but there are levels.
    TradeOnly {
        /// Bids and asks there are.
        levels: u8,
    },
    /// The code holds something other than printable ASCII.
    Symbol {
        /// The byte.
        found: u8,
    },
    /// No time of day, nor the end of the feed.
    Time {
        /// The field.
        found: [u8; 6],
    },
}

impl Fault {
    /// A word for the fault, for counters and records.
    pub const fn name(&self) -> &'static str {
        match self {
            Fault::Escape { .. } => "escape",
            Fault::Short { .. } => "short",
            Fault::Digit { .. } => "digit",
            Fault::Length { .. } => "length",
            Fault::Terminator { .. } => "terminator",
            Fault::Checksum { .. } => "checksum",
            Fault::Size { .. } => "size",
            Fault::Levels { .. } => "levels",
            Fault::TradeOnly { .. } => "trade_only",
            Fault::Symbol { .. } => "symbol",
            Fault::Time { .. } => "time",
        }
    }
}

impl fmt::Display for TelegramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TelegramError { offset, field_offset: at, .. } = *self;
        match self.fault {
            Fault::Escape { found } => {
                write!(f, "offset {offset} holds {found:#04x}, expected a telegram's 0x1b")?;
            }
            Fault::Short { had_bytes } => write!(
                f,
                "the telegram at offset {offset} is cut off: {had_bytes} bytes are there, the \
                 smallest takes {MIN_BYTES}"
            )?,
            Fault::Digit { field, found } => {
                write!(f, "{field} at offset {at} holds {found:#04x}, expected two decimal digits")?
            }
            Fault::Length { declared_bytes, had_bytes } => write!(
                f,
                "the length at offset {at} is {declared_bytes} bytes, expected {MIN_BYTES} to the \
                 {had_bytes} that are there"
            )?,
            Fault::Terminator { found: [a, b] } => write!(
                f,
                "the telegram at offset {offset} ends in {a:02x} {b:02x} at offset {at}, expected \
                 {:02x} {:02x}",
                TERMINATOR[0], TERMINATOR[1]
            )?,
            Fault::Checksum { expected, found } => {
                write!(f, "the checksum at offset {at} is {found:#04x}, expected {expected:#04x}")?
            }
            Fault::Size { expected_bytes, found_bytes } => write!(
                f,
                "the telegram at offset {offset} has {found_bytes} bytes, its format and levels \
                 take {expected_bytes}"
            )?,
            Fault::Levels { side, found } => {
                write!(f, "{found} {side} levels at offset {at}, expected 0 to 5")?;
            }
            Fault::TradeOnly { levels } => write!(
                f,
                "{levels} levels at offset {at} in a telegram that is marked as without a book"
            )?,
            Fault::Symbol { found } => {
                write!(f, "the code holds {found:#04x} at offset {at}, expected printable ASCII")?
            }
            Fault::Time { found: [a, b, c, d, e, g] } => write!(
                f,
                "the time at offset {at} is {a:02x}:{b:02x}:{c:02x}.{d:02x}{e:02x}{g:02x}, \
                 expected a time of day"
            )?,
        }
        Ok(())
    }
}

impl core::error::Error for TelegramError {}

/// Why a value does not become a telegram.
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
    /// A telegram that the decoder would refuse: see the text.
    Contradiction {
        /// What contradicts what.
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
