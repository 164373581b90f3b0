//! Format 23, version 01: intraday odd lots, below a trading unit.

use super::bcd;
use super::book::{Book, PRICE_BYTES, lot};
use super::repr::TelegramRepr;
use super::value::Level;
use crate::price::Price;

/// Format of an odd lot.
pub const FORMAT_ODD_LOT: u8 = 23;

/// Volumes and quantities in shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SingleShares;

lot!(
    SingleShares, formats [FORMAT_ODD_LOT], version 1, trade_only false,
    quantity 6, level 11, |&[top, a, b, c, d, e, f, g, h, low @ ..]: &[u8; 11]| {
        let (price, quantity) = bcd::two_eights([a, b, c, d, e, f, g, h]);
        Level {
            price: Price(u64::from(bcd::two(top)) * 100_000_000 + u64::from(price)),
            quantity: u64::from(quantity) * 10_000 + u64::from(bcd::four(low)),
        }
    }
);

/// An odd lot; quantities have up to twelve digits.
pub type OddLot<'a> = Book<'a, SingleShares>;
/// An odd lot, by value.
pub type OddLotRepr = TelegramRepr<SingleShares>;
