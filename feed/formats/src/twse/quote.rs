//! Formats 06 and 17, version 04: quotes of stocks and of warrants, in trading units.

use super::bcd;
use super::book::{Book, PRICE_BYTES, lot};
use super::repr::TelegramRepr;
use super::value::Level;
use crate::price::Price;

/// Format of a stock's quote.
pub const FORMAT_QUOTE: u8 = 6;
/// Format of a warrant's quote.
pub const FORMAT_WARRANT: u8 = 17;

/// Volumes and quantities in trading units, usually of a thousand shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RoundLot;

lot!(
    RoundLot, formats [FORMAT_QUOTE, FORMAT_WARRANT], version 4, trade_only true,
    quantity 4, level 9, |&[top, low @ ..]: &[u8; 9]| {
        // The price but for its first two digits, and the quantity, are one word.
        let (price, quantity) = bcd::two_eights(low);
        Level {
            price: Price(u64::from(bcd::two(top)) * 100_000_000 + u64::from(price)),
            quantity: quantity.into(),
        }
    }
);

/// A quote; quantities have up to eight digits.
pub type Quote<'a> = Book<'a, RoundLot>;
/// A quote, by value.
pub type QuoteRepr = TelegramRepr<RoundLot>;
