//! Errors of messages.

use core::fmt;

use super::kind::Kind;

/// Error of parsing a message. Offsets count from the start of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItchError {
    /// The message is empty.
    Empty,
    /// A type that version 5.0 does not have.
    Type {
        /// Byte found.
        found: u8,
    },
    /// Not as long as messages of the type are.
    Size {
        /// Type of the message.
        kind: Kind,
        /// Bytes that are there, of [`Kind::message_bytes`].
        found_bytes: usize,
    },
    /// Neither bought nor sold.
    Side {
        /// Offset of the field.
        at: usize,
        /// Byte found instead of `B` or `S`.
        found: u8,
    },
    /// The instrument's name holds something other than printable ASCII.
    Stock {
        /// Offset of the byte.
        at: usize,
        /// Byte found.
        found: u8,
    },
}

impl ItchError {
    /// Offset in the message; add [`crate::mold::Message::offset`] for the offset in the datagram.
    pub const fn offset(&self) -> usize {
        match *self {
            ItchError::Empty | ItchError::Type { .. } | ItchError::Size { .. } => 0,
            ItchError::Side { at, .. } | ItchError::Stock { at, .. } => at,
        }
    }

    /// A word for the error, for counters and records.
    pub const fn name(&self) -> &'static str {
        match self {
            ItchError::Empty => "empty",
            ItchError::Type { .. } => "type",
            ItchError::Size { .. } => "size",
            ItchError::Side { .. } => "side",
            ItchError::Stock { .. } => "stock",
        }
    }
}

impl fmt::Display for ItchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ItchError::Empty => f.write_str("the message is empty"),
            ItchError::Type { found } => {
                write!(f, "the type at offset 0 is {found:#04x}, which ITCH 5.0 does not have")
            }
            ItchError::Size { kind, found_bytes } => write!(
                f,
                "a {} message takes {} bytes, {found_bytes} are there",
                kind.name(),
                kind.message_bytes()
            ),
            ItchError::Side { at, found } => {
                write!(f, "the side at offset {at} is {found:#04x}, expected B or S")
            }
            ItchError::Stock { at, found } => {
                write!(f, "the stock holds {found:#04x} at offset {at}, expected printable ASCII")
            }
        }
    }
}

impl core::error::Error for ItchError {}

/// Error of encoding a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodeError {
    /// The buffer is too small.
    Short {
        /// Bytes of the message.
        needed_bytes: usize,
        /// Bytes of the buffer.
        had_bytes: usize,
    },
    /// A number is larger than its field.
    Number {
        /// The field.
        field: &'static str,
        /// The number.
        value: u64,
        /// Largest that fits.
        max: u64,
    },
    /// A body that is passed through is not as long as its type's.
    Size {
        /// Message type.
        kind: Kind,
        /// Length of the body.
        found_bytes: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            EncodeError::Short { needed_bytes, had_bytes } => {
                write!(f, "the message takes {needed_bytes} bytes, the buffer has {had_bytes}")
            }
            EncodeError::Number { field, value, max } => {
                write!(f, "{field} is {value}, at most {max} fits")
            }
            EncodeError::Size { kind, found_bytes } => write!(
                f,
                "the body of a {} message has {found_bytes} bytes, its type another number",
                kind.name()
            ),
        }
    }
}

impl core::error::Error for EncodeError {}
