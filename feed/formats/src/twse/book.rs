//! Common layout of quotes and odd lots: a trade and up to five levels a side.
//!
//! | offset | field | |
//! |---|---|---|
//! | 10 | 6 characters code | |
//! | 16 | 12 digits time | HHMMSS, milliseconds, microseconds |
//! | 22 | u8 items | 7 trade, 6-4 bids, 3-1 asks, 0 trade only |
//! | 23 | u8 limits | [`PriceLimits`] |
//! | 24 | u8 status | [`Status`] |
//! | 25 | digits volume | 8 of a quote, 12 of an odd lot |
//! | 29, 31 | levels | price of 10 digits, quantity as wide as the volume |
//!
//! The levels are the trade, the bids, the asks, each only when there is one.

use core::fmt;
use core::slice;

use super::bcd;
use super::error::TelegramFault;
use super::header::{self, Business, HEADER_BYTES};
use super::value::{Level, Levels, MatchTime, PriceLimits, Status, Symbol, is_printable};

/// Bytes before the volume.
pub(super) const HEAD_BYTES: usize = HEADER_BYTES + 15;
const TIME_OFFSET: usize = HEADER_BYTES + 6;
const ITEMS_OFFSET: usize = HEADER_BYTES + 12;
const LIMITS_OFFSET: usize = HEADER_BYTES + 13;
const STATUS_OFFSET: usize = HEADER_BYTES + 14;
pub(super) const PRICE_BYTES: usize = 5;
const TRADE: u8 = 0x80;
const TRADE_ONLY: u8 = 0x01;
/// The time of a telegram that ends the feed.
pub(super) const NINES: [u8; 6] = [0x99; 6];

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Width of volumes and quantities: [`super::RoundLot`] or [`super::SingleShares`].
pub trait Lot: sealed::Sealed + Copy + fmt::Debug + PartialEq + 'static {
    /// Telegram formats with this layout.
    const FORMATS: &'static [u8];
    /// Version of these formats.
    const VERSION: u8;
    /// Bytes of the volume and of each quantity.
    const QUANTITY_BYTES: usize;
    /// True if a trade may come without the book.
    const HAS_TRADE_ONLY: bool;
    /// The volume's bytes.
    #[doc(hidden)]
    type Volume: Copy + fmt::Debug + AsRef<[u8]>;
    /// A level's bytes.
    #[doc(hidden)]
    type Packed: Copy + fmt::Debug;

    /// Volume and levels; `None` if the volume is missing or a level is truncated.
    #[doc(hidden)]
    fn split(bytes: &[u8]) -> Option<(&Self::Volume, &[Self::Packed])>;
    /// Mutable [`Lot::split`].
    #[doc(hidden)]
    fn split_mut(bytes: &mut [u8]) -> Option<(&mut Self::Volume, &mut [Self::Packed])>;
    /// Levels as sent.
    #[doc(hidden)]
    fn bytes(levels: &[Self::Packed]) -> &[u8];
    #[doc(hidden)]
    fn volume(volume: &Self::Volume) -> u64;
    #[doc(hidden)]
    fn level(packed: &Self::Packed) -> Level;
    #[doc(hidden)]
    fn pack_volume(volume: u64) -> Option<Self::Volume>;
    #[doc(hidden)]
    fn pack_level(level: &Level) -> Option<Self::Packed>;
}

/// A telegram with a trade, a book or both; each accessor decodes its field.
///
/// The levels are a snapshot, not a change.
#[derive(Debug, Clone, Copy)]
pub struct Book<'a, L: Lot> {
    head: &'a [u8; HEAD_BYTES],
    volume: &'a L::Volume,
    levels: &'a [L::Packed],
}

impl<'a, L: Lot> Book<'a, L> {
    /// Checks everything after the header of a telegram with a valid frame.
    ///
    /// Errors: the offset of the faulty field in the telegram, and the fault.
    #[inline(always)]
    pub(super) fn check(telegram: &'a [u8]) -> Result<Book<'a, L>, (usize, TelegramFault)> {
        let Some((head, numbers)) = split(telegram) else { return Err(size::<L>(telegram, 0)) };
        let items = Items(head[ITEMS_OFFSET]);
        items.check(L::HAS_TRADE_ONLY).map_err(|fault| (ITEMS_OFFSET, fault))?;
        let Some((volume, levels)) =
            L::split(numbers).filter(|(_, levels)| levels.len() == items.levels())
        else {
            return Err(size::<L>(telegram, items.levels()));
        };
        if !code(head).into_iter().fold(true, |all, byte| all & is_printable(byte)) {
            return Err(bad_code(head));
        }
        check_time(head)?;
        if !bcd::are_digits(numbers) {
            return Err(bad_number::<L>(numbers));
        }
        Ok(Book { head, volume, levels })
    }

    /// View of a checked telegram.
    #[inline]
    pub(super) fn view(telegram: &'a [u8]) -> Option<Book<'a, L>> {
        let (head, numbers) = split(telegram)?;
        let (volume, levels) = L::split(numbers)?;
        Some(Book { head, volume, levels })
    }

    /// Market of the telegram.
    #[inline]
    pub fn business(&self) -> Business {
        header::business(self.head)
    }

    /// Format of the telegram.
    #[inline]
    pub fn format(&self) -> u8 {
        header::format(self.head)
    }

    /// Number of the telegram in its business and format.
    #[inline]
    pub fn sequence(&self) -> u32 {
        header::sequence(self.head)
    }

    /// Code of the instrument.
    #[inline]
    pub fn symbol(&self) -> Symbol {
        Symbol::from_checked(code(self.head))
    }

    /// Time of the match or of the start of the halt; `None` at the end of the feed.
    #[inline]
    pub fn time(&self) -> Option<MatchTime> {
        let time = time(self.head);
        if time == NINES {
            return None;
        }
        let [hours, minutes, seconds, fraction @ ..] = time;
        let seconds = (u64::from(bcd::two(hours)) * 60 + u64::from(bcd::two(minutes))) * 60
            + u64::from(bcd::two(seconds));
        Some(MatchTime::from_checked(seconds * 1_000_000 + bcd::number(&fraction)))
    }

    /// True for the end-of-feed marker: no further quotes follow today.
    #[inline]
    pub fn is_end_of_feed(&self) -> bool {
        time(self.head) == NINES
    }

    /// True if further trades of the same order follow; the last one carries the book.
    ///
    /// In an odd lot the bit is reserved.
    #[inline]
    pub fn is_trade_only(&self) -> bool {
        self.items().is_trade_only()
    }

    /// Prices at the day's limits; a halt.
    #[inline]
    pub fn limits(&self) -> PriceLimits {
        PriceLimits(self.head[LIMITS_OFFSET])
    }

    /// Trial, opening, close.
    #[inline]
    pub fn status(&self) -> Status {
        Status(self.head[STATUS_OFFSET])
    }

    /// Traded today, in the units of [`Level::quantity`].
    #[inline]
    pub fn cumulative_volume(&self) -> u64 {
        L::volume(self.volume)
    }

    /// The trade, if any; its quantity is 0 during a halt.
    #[inline]
    pub fn trade(&self) -> Option<Level> {
        self.levels.first().filter(|_| self.items().has_trade()).map(L::level)
    }

    /// Bids, the best first.
    #[inline]
    pub fn bids(&self) -> PackedLevels<'a, L> {
        let items = self.items();
        self.side(usize::from(items.has_trade()), usize::from(items.bids()))
    }

    /// Asks, the best first.
    #[inline]
    pub fn asks(&self) -> PackedLevels<'a, L> {
        let items = self.items();
        let before = usize::from(items.has_trade()) + usize::from(items.bids());
        self.side(before, usize::from(items.asks()))
    }

    /// Bids, then asks, as sent.
    #[inline]
    pub(super) fn packed_sides(&self) -> &'a [u8] {
        let sides = self.levels.get(usize::from(self.items().has_trade())..);
        L::bytes(sides.unwrap_or_default())
    }

    #[inline]
    fn side(&self, first: usize, count: usize) -> PackedLevels<'a, L> {
        PackedLevels(self.levels.get(first..first + count).unwrap_or_default().iter())
    }

    #[inline]
    fn items(&self) -> Items {
        Items(self.head[ITEMS_OFFSET])
    }
}

/// Levels of one side, the best first.
#[derive(Debug, Clone)]
pub struct PackedLevels<'a, L: Lot>(slice::Iter<'a, L::Packed>);

impl<L: Lot> Iterator for PackedLevels<'_, L> {
    type Item = Level;

    #[inline]
    fn next(&mut self) -> Option<Level> {
        self.0.next().map(L::level)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }

    // Folding a chain visits each side in its own loop, without a branch per level.
    #[inline]
    fn fold<B, F: FnMut(B, Level) -> B>(self, init: B, mut each: F) -> B {
        self.0.fold(init, |folded, packed| each(folded, L::level(packed)))
    }
}

impl<L: Lot> ExactSizeIterator for PackedLevels<'_, L> {}

/// Flags and level counts.
#[derive(Clone, Copy)]
pub(super) struct Items(pub(super) u8);

impl Items {
    pub(super) fn new(trade: bool, bids: usize, asks: usize, trade_only: bool) -> Items {
        Items((u8::from(trade) << 7) | (bids as u8) << 4 | (asks as u8) << 1 | u8::from(trade_only))
    }

    #[inline]
    fn has_trade(self) -> bool {
        self.0 & TRADE != 0
    }

    #[inline]
    fn bids(self) -> u8 {
        self.0 >> 4 & 7
    }

    #[inline]
    fn asks(self) -> u8 {
        self.0 >> 1 & 7
    }

    #[inline]
    fn is_trade_only(self) -> bool {
        self.0 & TRADE_ONLY != 0
    }

    /// Trade, bids and asks together.
    #[inline]
    pub(super) fn levels(self) -> usize {
        usize::from(self.has_trade()) + usize::from(self.bids()) + usize::from(self.asks())
    }

    #[inline]
    fn check(self, has_trade_only: bool) -> Result<(), TelegramFault> {
        for (side, found) in [("bid", self.bids()), ("ask", self.asks())] {
            if usize::from(found) > Levels::MAX {
                return Err(TelegramFault::Levels { side, found });
            }
        }
        let levels = self.bids() + self.asks();
        if has_trade_only && self.is_trade_only() && levels > 0 {
            return Err(TelegramFault::TradeOnly { levels });
        }
        Ok(())
    }
}

/// Splits a telegram before the volume and drops the trailer.
#[inline]
fn split(telegram: &[u8]) -> Option<(&[u8; HEAD_BYTES], &[u8])> {
    let (telegram, _) = telegram.split_last_chunk::<{ header::TRAILER_BYTES }>()?;
    telegram.split_first_chunk()
}

#[inline]
fn code(head: &[u8; HEAD_BYTES]) -> [u8; 6] {
    let [.., a, b, c, d, e, f, _, _, _, _, _, _, _, _, _] = *head;
    [a, b, c, d, e, f]
}

#[inline]
fn time(head: &[u8; HEAD_BYTES]) -> [u8; 6] {
    let [.., a, b, c, d, e, f, _, _, _] = *head;
    [a, b, c, d, e, f]
}

#[inline]
fn check_time(head: &[u8; HEAD_BYTES]) -> Result<(), (usize, TelegramFault)> {
    let found = time(head);
    // Packed digits can be compared without decoding.
    let right = found[0] <= 0x23 && found[1] <= 0x59 && found[2] <= 0x59;
    let [a, b, c, d, e, f] = found;
    if right && bcd::bad_nibbles(u64::from_be_bytes([0, 0, a, b, c, d, e, f])) == 0 {
        return Ok(());
    }
    bad_time(head)
}

#[cold]
fn bad_time(head: &[u8; HEAD_BYTES]) -> Result<(), (usize, TelegramFault)> {
    let found = time(head);
    if found == NINES && code(head) == Symbol::ZEROS.to_bytes() {
        return Ok(());
    }
    Err(match bcd::first_bad(&found) {
        Some(at) => (TIME_OFFSET + at, TelegramFault::Digit { field: "time", found: found[at] }),
        None => (TIME_OFFSET, TelegramFault::Time { found }),
    })
}

#[cold]
fn size<L: Lot>(telegram: &[u8], levels: usize) -> (usize, TelegramFault) {
    let expected_bytes = telegram_bytes::<L>(levels);
    (1, TelegramFault::Size { expected_bytes, found_bytes: telegram.len() })
}

#[cold]
fn bad_code(head: &[u8; HEAD_BYTES]) -> (usize, TelegramFault) {
    let code = code(head);
    let at = code.iter().position(|&byte| !is_printable(byte)).unwrap_or_default();
    (HEADER_BYTES + at, TelegramFault::Symbol { found: code[at] })
}

#[cold]
fn bad_number<L: Lot>(numbers: &[u8]) -> (usize, TelegramFault) {
    let at = bcd::first_bad(numbers).unwrap_or_default();
    let field = match at.checked_sub(L::QUANTITY_BYTES) {
        None => "cumulative volume",
        Some(at) if at % (PRICE_BYTES + L::QUANTITY_BYTES) < PRICE_BYTES => "price",
        Some(_) => "quantity",
    };
    (
        HEAD_BYTES + at,
        TelegramFault::Digit { field, found: numbers.get(at).copied().unwrap_or_default() },
    )
}

/// Length of a telegram with `levels` levels, including the trade.
pub(super) const fn telegram_bytes<L: Lot>(levels: usize) -> usize {
    HEAD_BYTES
        + L::QUANTITY_BYTES
        + levels * (PRICE_BYTES + L::QUANTITY_BYTES)
        + header::TRAILER_BYTES
}

/// Makes a type a [`Lot`]: the trait is closed, the layouts are the exchange's.
macro_rules! lot {
    (
        $name:ident, formats $formats:expr, version $version:literal, trade_only $trade_only:literal,
        quantity $quantity:literal, level $packed:literal, $level:expr
    ) => {
        impl $crate::twse::book::sealed::Sealed for $name {}
        impl $crate::twse::book::Lot for $name {
            const FORMATS: &'static [u8] = &$formats;
            const VERSION: u8 = $version;
            const QUANTITY_BYTES: usize = $quantity;
            const HAS_TRADE_ONLY: bool = $trade_only;
            type Volume = [u8; $quantity];
            type Packed = [u8; $packed];

            #[inline]
            fn split(bytes: &[u8]) -> Option<(&Self::Volume, &[Self::Packed])> {
                let (volume, levels) = bytes.split_first_chunk()?;
                let (levels, rest) = levels.as_chunks();
                rest.is_empty().then_some((volume, levels))
            }

            #[inline]
            fn split_mut(bytes: &mut [u8]) -> Option<(&mut Self::Volume, &mut [Self::Packed])> {
                let (volume, levels) = bytes.split_first_chunk_mut()?;
                let (levels, rest) = levels.as_chunks_mut();
                rest.is_empty().then_some((volume, levels))
            }

            #[inline]
            fn bytes(levels: &[Self::Packed]) -> &[u8] {
                levels.as_flattened()
            }

            #[inline]
            fn volume(volume: &Self::Volume) -> u64 {
                $crate::twse::bcd::number(volume)
            }

            #[inline]
            fn level(packed: &Self::Packed) -> $crate::twse::value::Level {
                $level(packed)
            }

            #[inline]
            fn pack_volume(volume: u64) -> Option<Self::Volume> {
                $crate::twse::bcd::digits(volume)
            }

            #[inline]
            fn pack_level(level: &$crate::twse::value::Level) -> Option<Self::Packed> {
                let price: [u8; PRICE_BYTES] = $crate::twse::bcd::digits(level.price.0)?;
                let quantity: [u8; $quantity] = $crate::twse::bcd::digits(level.quantity)?;
                let mut packed = [0; $packed];
                packed[..PRICE_BYTES].copy_from_slice(&price);
                packed[PRICE_BYTES..].copy_from_slice(&quantity);
                Some(packed)
            }
        }
    };
}
pub(super) use lot;
