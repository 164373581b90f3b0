//! The values in messages: times, names, sides.

use core::fmt;

use super::error::ItchError;

/// Nanoseconds since midnight, New York time; below 2^48.
///
/// Prints as `HH:MM:SS.nnnnnnnnn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02}.{nanos:09}", seconds % 60)
    }
}

/// An instrument's name: eight printable ASCII characters, padded with spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stock([u8; 8]);

impl Stock {
    /// Name of up to eight characters; `None` if longer or not printable ASCII.
    pub fn new(name: &str) -> Option<Stock> {
        let mut bytes = [b' '; 8];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        Stock::from_bytes(bytes)
    }

    /// Parses a name from the bytes of a message; `None` if they are not printable ASCII.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 8]) -> Option<Stock> {
        let mut at = 0;
        let mut printable = true;
        while at < bytes.len() {
            printable &= matches!(bytes[at], b' '..=b'~');
            at += 1;
        }
        if printable { Some(Stock(bytes)) } else { None }
    }

    /// All eight characters.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// The characters as one number, in the order of the text: cheap to hash and to compare.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        u64::from_be_bytes(self.0)
    }

    /// The name without its trailing spaces.
    pub fn as_str(&self) -> &str {
        // The characters were checked, so the default is never used.
        core::str::from_utf8(&self.0).unwrap_or_default().trim_end_matches(' ')
    }

    #[inline]
    pub(super) fn parse(bytes: [u8; 8], at: usize) -> Result<Stock, ItchError> {
        Stock::from_bytes(bytes).ok_or_else(|| {
            let bad = bytes.iter().position(|byte| !matches!(byte, b' '..=b'~')).unwrap_or(0);
            ItchError::Stock { at: at + bad, found: bytes[bad] }
        })
    }
}

impl fmt::Display for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Side of the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BookSide {
    /// `B`.
    Buy,
    /// `S`.
    Sell,
}

impl BookSide {
    #[inline]
    pub(super) fn parse(found: u8, at: usize) -> Result<BookSide, ItchError> {
        match found {
            b'B' => Ok(BookSide::Buy),
            b'S' => Ok(BookSide::Sell),
            _ => Err(ItchError::Side { at, found }),
        }
    }

    pub(super) const fn to_wire(self) -> u8 {
        match self {
            BookSide::Buy => b'B',
            BookSide::Sell => b'S',
        }
    }
}
