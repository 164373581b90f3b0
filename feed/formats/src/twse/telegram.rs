//! A telegram, and the telegrams of a datagram.

use core::iter::{self, FusedIterator};

use super::bcd;
use super::error::{EncodeError, TelegramError, TelegramFault};
use super::header::{self, Business, HEADER_BYTES, Header, MIN_BYTES, TRAILER_BYTES};
use super::instrument::{FORMAT_INSTRUMENT, Instrument};
use super::odd_lot::{FORMAT_ODD_LOT, OddLot};
use super::quote::{FORMAT_QUOTE, FORMAT_WARRANT, Quote};
use super::value::Symbol;

/// A telegram with a valid frame and body.
#[derive(Debug, Clone, Copy)]
pub struct Telegram<'a> {
    offset: usize,
    bytes: &'a [u8],
    head: &'a [u8; HEADER_BYTES],
    kind: Kind,
}

/// Type of body.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Quote,
    OddLot,
    Instrument,
    Other,
}

/// Decoded body of a telegram.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// Formats 06 and 17, version 04.
    Quote(Quote<'a>),
    /// Format 23, version 01.
    OddLot(OddLot<'a>),
    /// Format 01, versions 08 and 09.
    Instrument(Instrument<'a>),
    /// Any other format, version or business: the bytes between header and checksum.
    Other(&'a [u8]),
}

impl<'a> Telegram<'a> {
    /// Offset in the datagram.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes from escape to terminator.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Market of the telegram.
    #[inline]
    pub fn business(&self) -> Business {
        header::business(self.head)
    }

    /// Format, 0 to 99.
    #[inline]
    pub fn format(&self) -> u8 {
        header::format(self.head)
    }

    /// Version of the format, 0 to 99.
    #[inline]
    pub fn version(&self) -> u8 {
        header::version(self.head)
    }

    /// Number within business and format: from 1 each day, in format 01 from 1 each cycle.
    #[inline]
    pub fn sequence(&self) -> u32 {
        header::sequence(self.head)
    }

    /// Decoded body.
    #[inline]
    pub fn body(&self) -> Body<'a> {
        let body = match self.kind {
            Kind::Quote => Quote::view(self.bytes).map(Body::Quote),
            Kind::OddLot => OddLot::view(self.bytes).map(Body::OddLot),
            Kind::Instrument => Instrument::view(self.bytes).map(Body::Instrument),
            Kind::Other => None,
        };
        // The other bodies were checked, so their views exist.
        body.unwrap_or_else(|| {
            let end = self.bytes.len().saturating_sub(TRAILER_BYTES);
            Body::Other(self.bytes.get(HEADER_BYTES..end).unwrap_or_default())
        })
    }
}

/// A whole telegram, its header and its type of body.
type Checked<'a> = (&'a [u8], &'a [u8; HEADER_BYTES], Kind);

/// The telegram at the start of `bytes`; bytes after it are ignored.
///
/// Errors: the offset of the faulty field, and the fault.
#[inline(always)]
fn check(bytes: &[u8]) -> Result<Checked<'_>, (usize, TelegramFault)> {
    let bytes = header::frame(bytes)?;
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
        // A frame has at least 13 bytes.
        return Err((0, TelegramFault::Short { had_bytes: bytes.len() }));
    };
    // Packed digits can be compared without decoding.
    let kind = match (head[3], head[4], head[5]) {
        (0x01 | 0x02, QUOTE | WARRANT, 0x04) => Quote::check(bytes).map(|_| Kind::Quote)?,
        (0x01 | 0x02, ODD_LOT, 0x01) => OddLot::check(bytes).map(|_| Kind::OddLot)?,
        (0x01 | 0x02, INSTRUMENT, version) if Instrument::knows(version) => {
            Instrument::check(bytes).map(|_| Kind::Instrument)?
        }
        _ => Kind::Other,
    };
    Ok((bytes, head, kind))
}

const QUOTE: u8 = packed(FORMAT_QUOTE);
const WARRANT: u8 = packed(FORMAT_WARRANT);
const ODD_LOT: u8 = packed(FORMAT_ODD_LOT);
const INSTRUMENT: u8 = packed(FORMAT_INSTRUMENT);

const fn packed(number: u8) -> u8 {
    ((number / 10) << 4) | (number % 10)
}

/// The telegrams of a datagram, in order.
///
/// Every byte belongs to exactly one item: to a telegram's [`Telegram::bytes`] or to an error's
/// [`TelegramError::skipped_bytes`].
#[derive(Debug, Clone)]
pub struct Telegrams<'a> {
    datagram: &'a [u8],
    offset: usize,
}

impl<'a> Telegrams<'a> {
    /// Telegrams of a UDP payload.
    #[inline]
    pub fn new(datagram: &'a [u8]) -> Telegrams<'a> {
        Telegrams { datagram, offset: 0 }
    }

    /// Repeats the check to find the error: the path of valid telegrams need not carry it.
    #[cold]
    #[inline(never)]
    fn malformed(&mut self, rest: &[u8]) -> TelegramError {
        let offset = self.offset;
        let (field, fault) =
            check(rest).err().unwrap_or((0, TelegramFault::Short { had_bytes: rest.len() }));
        let skipped_bytes = header::skip(rest, &fault);
        self.offset += skipped_bytes;
        TelegramError { offset, skipped_bytes, field_offset: offset + field, fault }
    }
}

impl<'a> Iterator for Telegrams<'a> {
    type Item = Result<Telegram<'a>, TelegramError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.datagram.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let Ok((bytes, head, kind)) = check(rest) else { return Some(Err(self.malformed(rest))) };
        let offset = self.offset;
        self.offset += bytes.len();
        Some(Ok(Telegram { offset, bytes, head, kind }))
    }
}

impl FusedIterator for Telegrams<'_> {}

/// Instrument of a telegram that was not checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Market.
    pub business: Business,
    /// True in format 23.
    pub is_odd_lot: bool,
    /// Code.
    pub symbol: Symbol,
}

/// Instruments of the quotes and odd lots in a datagram, for what is fetched ahead of them: nothing is checked but what
/// their place needs, and a malformed telegram ends them.
#[inline]
pub fn ahead(mut datagram: &[u8]) -> impl Iterator<Item = Ahead> {
    iter::from_fn(move || {
        loop {
            let head = datagram.first_chunk::<{ HEADER_BYTES + 6 }>()?;
            let declared_bytes = usize::from(bcd::four([head[1], head[2]]));
            datagram = datagram.get(declared_bytes.max(MIN_BYTES)..).unwrap_or_default();
            let is_odd_lot = match head[4] {
                QUOTE | WARRANT => false,
                ODD_LOT => true,
                _ => continue,
            };
            let [.., a, b, c, d, e, f] = *head;
            if let Some(symbol) = Symbol::from_bytes([a, b, c, d, e, f]) {
                return Some(Ahead { business: header::business(head), is_odd_lot, symbol });
            }
        }
    })
}

/// A telegram of any format, by value, with a raw body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherRepr<'a> {
    /// Market of the telegram.
    pub business: Business,
    /// Format, up to 99.
    pub format: u8,
    /// Version of the format, up to 99.
    pub version: u8,
    /// Sequence number, up to [`super::MAX_SEQUENCE`].
    pub sequence: u32,
    /// Bytes between header and checksum.
    pub body: &'a [u8],
}

impl OtherRepr<'_> {
    /// Writes the telegram to the start of `buffer` and returns its length.
    ///
    /// Errors: the buffer is too short, or a number has more digits than its field.
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let header = Header {
            business: self.business,
            format: self.format,
            version: self.version,
            sequence: self.sequence,
        };
        header::write(buffer, self.body.len() + MIN_BYTES, header, |body| {
            body.copy_from_slice(self.body);
            Ok(())
        })
    }
}
