//! Telegrams of the Taiwan Stock Exchange and the Taipei Exchange.
//!
//! A datagram holds one or more telegrams. [`Telegrams`] iterates over them and checks each as a
//! whole; the accessors of a [`Telegram`] then decode fields and cannot fail. A malformed telegram
//! is one [`TelegramError`], and parsing resumes at the next.
//!
//! Formats 06 and 17 ([`Quote`]), 23 ([`OddLot`]) and 01 ([`Instrument`]) are decoded in the
//! versions of 2023 and 2024. Other formats and versions, such as those before 2020 with prices of
//! three bytes, have only their frame checked and are [`Body::Other`].
//!
//! Numbers are packed BCD: two digits a byte. Positions here are offsets, from 0; the manuals
//! count from 1. Sources: manual O-104-A10, B.12.07, of the Taiwan Stock Exchange (2023-03), and
//! V.12.15 of the Taipei Exchange (2024-10).

mod bcd;
mod book;
mod depth;
mod error;
mod header;
mod instrument;
mod odd_lot;
mod quote;
mod repr;
mod telegram;
#[cfg(test)]
mod tests;
mod value;

pub use book::{Book, Lot, PackedLevels};
pub use depth::Depth;
pub use error::{EncodeError, TelegramError, TelegramFault};
pub use header::{
    Business, ESCAPE, HEADER_BYTES, MAX_BYTES, MAX_SEQUENCE, MIN_BYTES, TERMINATOR, TRAILER_BYTES,
    has_header,
};
pub use instrument::{FORMAT_INSTRUMENT, Instrument, InstrumentRepr, Marker, Marks, Warrant};
pub use odd_lot::{FORMAT_ODD_LOT, OddLot, OddLotRepr, SingleShares};
pub use quote::{FORMAT_QUOTE, FORMAT_WARRANT, Quote, QuoteRepr, RoundLot};
pub use repr::TelegramRepr;
pub use telegram::{Ahead, Body, OtherRepr, Telegram, Telegrams, ahead};
pub use value::{Level, Levels, Limit, MatchTime, PriceLimits, Status, Symbol};

pub use crate::price::Price;
