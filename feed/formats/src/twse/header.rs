//! The ten bytes before every body and the three after it.
//!
//! | offset | field | |
//! |---|---|---|
//! | 0 | u8 escape | 0x1B |
//! | 1 | 4 digits length | the whole telegram, escape to terminator |
//! | 3 | 2 digits business | [`Business`] |
//! | 4 | 2 digits format | |
//! | 5 | 2 digits version | of the format |
//! | 6 | 8 digits sequence | from 1 each day, per business and format |
//! | 10 | body | |
//! | -3 | u8 checksum | exclusive or of all before it but the escape |
//! | -2 | 0x0D 0x0A | |

use super::bcd;
use super::error::{EncodeError, TelegramFault};

/// First byte of a telegram. Never part of a packed number.
pub const ESCAPE: u8 = 0x1b;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 10;
/// Bytes after the body: checksum and terminator.
pub const TRAILER_BYTES: usize = 3;
/// Bytes of a telegram without a body.
pub const MIN_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;
/// Largest length that the header can declare.
pub const MAX_BYTES: usize = 9999;
/// Largest sequence that the header holds.
pub const MAX_SEQUENCE: u32 = 99_999_999;
/// Last two bytes of a telegram.
pub const TERMINATOR: [u8; 2] = [0x0d, 0x0a];

const LENGTH_OFFSET: usize = 1;

/// Market of a telegram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Business {
    /// 01, the Taiwan Stock Exchange.
    Twse,
    /// 02, the Taipei Exchange.
    Tpex,
    /// Another number, 0 to 99.
    Other(u8),
}

impl Business {
    /// Business with the number on the wire.
    #[inline]
    pub const fn from_wire(number: u8) -> Business {
        match number {
            1 => Business::Twse,
            2 => Business::Tpex,
            other => Business::Other(other),
        }
    }

    /// Number on the wire.
    #[inline]
    pub const fn to_wire(self) -> u8 {
        match self {
            Business::Twse => 1,
            Business::Tpex => 2,
            Business::Other(other) => other,
        }
    }
}

/// Exclusive or of all bytes.
#[inline]
pub(super) fn exclusive_or(bytes: &[u8]) -> u8 {
    let (words, rest) = bytes.as_chunks::<8>();
    let word = words.iter().fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    let word = word ^ word >> 32;
    let word = word ^ word >> 16;
    rest.iter().fold((word ^ word >> 8) as u8, |sum, byte| sum ^ byte)
}

/// A telegram whose frame is whole: header digits, length, terminator and checksum are right.
pub(super) type Frame<'a> = &'a [u8];

/// The telegram at the start of `bytes`, with everything but its body checked.
///
/// Errors: the offset of the faulty field in `bytes`, and the fault.
#[inline(always)]
pub(super) fn frame(bytes: &[u8]) -> Result<Frame<'_>, (usize, TelegramFault)> {
    let had_bytes = bytes.len();
    let Some(head) = bytes.first_chunk::<MIN_BYTES>() else { return Err(short(bytes)) };
    if head[0] != ESCAPE {
        return Err((0, TelegramFault::Escape { found: head[0] }));
    }
    if !bcd::are_digits(&head[LENGTH_OFFSET..HEADER_BYTES]) {
        return Err(bad_header(head));
    }
    let declared_bytes = usize::from(bcd::four([head[1], head[2]]));
    let Some((telegram, trailer)) = bytes
        .get(..declared_bytes)
        .and_then(|telegram| Some((telegram, telegram.last_chunk::<TRAILER_BYTES>()?)))
        .filter(|_| declared_bytes >= MIN_BYTES)
    else {
        return Err((LENGTH_OFFSET, TelegramFault::Length { declared_bytes, had_bytes }));
    };
    let [found, cr, lf] = *trailer;
    if [cr, lf] != TERMINATOR {
        return Err((declared_bytes - 2, TelegramFault::Terminator { found: [cr, lf] }));
    }
    let expected = exclusive_or(&telegram[1..declared_bytes - TRAILER_BYTES]);
    if found != expected {
        return Err((declared_bytes - TRAILER_BYTES, TelegramFault::Checksum { expected, found }));
    }
    Ok(telegram)
}

#[cold]
fn short(bytes: &[u8]) -> (usize, TelegramFault) {
    match bytes.first() {
        Some(&found) if found != ESCAPE => (0, TelegramFault::Escape { found }),
        _ => (0, TelegramFault::Short { had_bytes: bytes.len() }),
    }
}

#[cold]
fn bad_header(head: &[u8; MIN_BYTES]) -> (usize, TelegramFault) {
    let at = LENGTH_OFFSET + bcd::first_bad(&head[LENGTH_OFFSET..HEADER_BYTES]).unwrap_or_default();
    let field = match at {
        1 | 2 => "length",
        3 => "business",
        4 => "format",
        5 => "version",
        _ => "sequence",
    };
    (at, TelegramFault::Digit { field, found: head[at] })
}

/// Number of bytes to skip after a malformed telegram at the start of `bytes`.
///
/// The declared length is trusted if it ends in a terminator. Otherwise, or if the checksum is
/// wrong (the length may be wrong too), the next telegram is searched for, and the bytes up to it
/// count as part of the malformed one.
#[cold]
pub(super) fn skip(bytes: &[u8], fault: &TelegramFault) -> usize {
    let next = |from: usize, is_next: fn(&[u8]) -> bool| {
        (from..bytes.len()).find(|&at| {
            bytes.get(at..).is_some_and(|rest| rest.first() == Some(&ESCAPE) && is_next(rest))
        })
    };
    let is_frame: fn(&[u8]) -> bool = |rest| frame(rest).is_ok();
    match (fault, declared(bytes)) {
        (TelegramFault::Escape { .. }, _) | (_, None) => next(1, is_plausible),
        (TelegramFault::Checksum { .. }, Some(declared)) => match next(1, is_frame) {
            // Only a valid frame overrides a length that ends in a terminator.
            Some(at) if at < declared => Some(at),
            _ => next(declared, is_plausible),
        },
        (_, Some(declared)) => Some(declared),
    }
    .unwrap_or(bytes.len())
}

/// True if the bytes look like the start of a telegram: the length ends in a terminator, or the
/// header is digits with a known business and a length that ends where the datagram does or another
/// telegram may start. Random bytes rarely pass, and packed numbers contain no escape. A corrupted
/// length digit that became an escape must not make the digits after it a telegram.
fn is_plausible(bytes: &[u8]) -> bool {
    let digits = bytes.get(LENGTH_OFFSET..HEADER_BYTES).is_some_and(|head| {
        let length = usize::from(bcd::four([head[0], head[1]]));
        let ends_between = match bytes.get(length) {
            Some(&next) => next == ESCAPE,
            None => length == bytes.len(),
        };
        bcd::are_digits(head)
            && !matches!(Business::from_wire(bcd::two(head[2])), Business::Other(_))
            && length >= MIN_BYTES
            && ends_between
    });
    digits || declared(bytes).is_some()
}

/// True if `bytes` begin as a telegram does: the escape, nine bytes of digits, and a length that a telegram can
/// have. The telegram may be torn.
pub fn has_header(bytes: &[u8]) -> bool {
    let Some((&ESCAPE, head)) = bytes.split_first() else { return false };
    head.first_chunk::<{ HEADER_BYTES - 1 }>().is_some_and(|head| {
        bcd::are_digits(head) && usize::from(bcd::four([head[0], head[1]])) >= MIN_BYTES
    })
}

/// The declared length if it is digits, fits and ends in the terminator.
fn declared(bytes: &[u8]) -> Option<usize> {
    let &[ESCAPE, high, low, ..] = bytes else { return None };
    let declared = usize::from(bcd::four([high, low]));
    let right = bcd::are_digits(&[high, low])
        && declared >= MIN_BYTES
        && bytes.get(..declared)?.ends_with(&TERMINATOR);
    right.then_some(declared)
}

/// Header fields other than the length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Header {
    pub(super) business: Business,
    pub(super) format: u8,
    pub(super) version: u8,
    pub(super) sequence: u32,
}

/// Writes header and trailer, has `body` write the body, and returns the telegram's length.
///
/// `telegram_bytes`: length of the whole telegram, at most [`MAX_BYTES`].
#[inline]
pub(super) fn write(
    buffer: &mut [u8],
    telegram_bytes: usize,
    header: Header,
    body: impl FnOnce(&mut [u8]) -> Result<(), EncodeError>,
) -> Result<usize, EncodeError> {
    let had_bytes = buffer.len();
    let telegram = buffer
        .get_mut(..telegram_bytes)
        .ok_or(EncodeError::Short { needed_bytes: telegram_bytes, had_bytes })?;
    let Some((head, rest)) = telegram.split_first_chunk_mut::<HEADER_BYTES>() else {
        return Err(EncodeError::Contradiction { why: "a telegram has at least 13 bytes" });
    };
    let Some((inner, trailer)) = rest.split_last_chunk_mut::<TRAILER_BYTES>() else {
        return Err(EncodeError::Contradiction { why: "a telegram has at least 13 bytes" });
    };
    let [l, m] = number(telegram_bytes as u64, "length")?;
    let [b] = number(header.business.to_wire().into(), "business")?;
    let [f] = number(header.format.into(), "format")?;
    let [v] = number(header.version.into(), "version")?;
    let [s, t, u, w] = number(header.sequence.into(), "sequence")?;
    *head = [ESCAPE, l, m, b, f, v, s, t, u, w];
    body(inner)?;
    trailer[0] = exclusive_or(&head[1..]) ^ exclusive_or(inner);
    [trailer[1], trailer[2]] = TERMINATOR;
    Ok(telegram_bytes)
}

/// Packs a number into `N` bytes.
#[inline]
pub(super) fn number<const N: usize>(
    value: u64,
    field: &'static str,
) -> Result<[u8; N], EncodeError> {
    let max = const { 100u64.pow(N as u32) - 1 };
    bcd::digits(value).ok_or(EncodeError::Number { field, value, max })
}

/// Writes a packed number that fills `bytes`.
#[inline]
pub(super) fn put(value: u64, bytes: &mut [u8], field: &'static str) -> Result<(), EncodeError> {
    if bcd::put(value, bytes) {
        return Ok(());
    }
    Err(EncodeError::Number { field, value, max: 100u64.pow(bytes.len() as u32) - 1 })
}

/// Market of a header.
#[inline]
pub(super) fn business<const N: usize>(head: &[u8; N]) -> Business {
    const { assert!(N >= HEADER_BYTES) };
    Business::from_wire(bcd::two(head[3]))
}

/// Format that a header names, 0 to 99.
#[inline]
pub(super) fn format<const N: usize>(head: &[u8; N]) -> u8 {
    const { assert!(N >= HEADER_BYTES) };
    bcd::two(head[4])
}

/// Version of the format that a header names, 0 to 99.
#[inline]
pub(super) fn version<const N: usize>(head: &[u8; N]) -> u8 {
    const { assert!(N >= HEADER_BYTES) };
    bcd::two(head[5])
}

/// The sequence of a header whose digits were checked.
#[inline]
pub(super) fn sequence<const N: usize>(head: &[u8; N]) -> u32 {
    const { assert!(N >= HEADER_BYTES) };
    bcd::two_eights([0, 0, 0, 0, head[6], head[7], head[8], head[9]]).1
}
