//! Quotes and odd lots by value, and their encoder.

use core::marker::PhantomData;

use super::bcd;
use super::book::{Book, HEAD_BYTES, Items, Lot, NINES, PRICE_BYTES, telegram_bytes};
use super::error::EncodeError;
use super::header::{self, Business, HEADER_BYTES, Header};
use super::value::{Level, Levels, MatchTime, PriceLimits, Status, Symbol};

/// A telegram with a trade, a book or both, by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelegramRepr<L: Lot> {
    /// Market of the telegram.
    pub business: Business,
    /// One of [`Lot::FORMATS`].
    pub format: u8,
    /// Number of the telegram in its business and format, up to [`super::MAX_SEQUENCE`].
    pub sequence: u32,
    /// Code of the instrument; [`Symbol::ZEROS`] at the end of the feed.
    pub symbol: Symbol,
    /// Time of the match or of the start of the halt; `None` at the end of the feed.
    pub time: Option<MatchTime>,
    /// Further trades of the same order follow; the last carries the book, this one no levels.
    /// Reserved in an odd lot.
    pub trade_only: bool,
    /// Prices at the day's limits; a halt.
    pub limits: PriceLimits,
    /// Trial, opening, close.
    pub status: Status,
    /// Traded today.
    pub cumulative_volume: u64,
    /// The trade.
    pub trade: Option<Level>,
    /// Bids, the best first.
    pub bids: Levels,
    /// Asks, the best first.
    pub asks: Levels,
    /// Type of lot.
    pub lot: PhantomData<L>,
}

fn digits(bytes: usize) -> u64 {
    100u64.pow(bytes as u32) - 1
}

impl<L: Lot> TelegramRepr<L> {
    /// Decodes all fields of the telegram.
    pub fn of(book: &Book<'_, L>) -> TelegramRepr<L> {
        TelegramRepr {
            business: book.business(),
            format: book.format(),
            sequence: book.sequence(),
            symbol: book.symbol(),
            time: book.time(),
            trade_only: book.is_trade_only(),
            limits: book.limits(),
            status: book.status(),
            cumulative_volume: book.cumulative_volume(),
            trade: book.trade(),
            // Five at most, as was checked.
            bids: Levels::first_of(book.bids()),
            asks: Levels::first_of(book.asks()),
            lot: PhantomData,
        }
    }

    /// Bytes of the telegram.
    pub fn telegram_bytes(&self) -> usize {
        telegram_bytes::<L>(self.items().levels())
    }

    /// Writes the telegram to the start of `buffer` and returns its length.
    ///
    /// Errors: the buffer is too short, a number has more digits than its field, or the decoder
    /// would refuse the telegram. The content of the buffer is then unspecified.
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        if !L::FORMATS.contains(&self.format) {
            return Err(EncodeError::Contradiction { why: "the format does not have this body" });
        }
        if L::HAS_TRADE_ONLY && self.trade_only && self.bids.len() + self.asks.len() > 0 {
            return Err(EncodeError::Contradiction {
                why: "a trade without the book has no bids and no asks",
            });
        }
        if self.time.is_none() && self.symbol != Symbol::ZEROS {
            return Err(EncodeError::Contradiction {
                why: "only the end of the feed (code 000000) has no time",
            });
        }
        let header = Header {
            business: self.business,
            format: self.format,
            version: L::VERSION,
            sequence: self.sequence,
        };
        header::write(buffer, self.telegram_bytes(), header, |body| self.write_body(body))
    }

    #[inline]
    fn write_body(&self, body: &mut [u8]) -> Result<(), EncodeError> {
        // `write` sized the body for the levels.
        let cut = EncodeError::Contradiction { why: "the body is shorter than its levels" };
        let (head, numbers) =
            body.split_first_chunk_mut::<{ HEAD_BYTES - HEADER_BYTES }>().ok_or(cut)?;
        head[..6].copy_from_slice(&self.symbol.to_bytes());
        head[6..12].copy_from_slice(&self.time.map_or(NINES, packed_time));
        head[12] = self.items().0;
        head[13] = self.limits.0;
        head[14] = self.status.0;
        let (volume, levels) = L::split_mut(numbers).ok_or(cut)?;
        *volume = L::pack_volume(self.cumulative_volume).ok_or_else(|| self.too_large())?;
        let (trade, levels) =
            levels.split_at_mut_checked(usize::from(self.trade.is_some())).ok_or(cut)?;
        let (bids, asks) = levels.split_at_mut_checked(self.bids.len()).ok_or(cut)?;
        for (packed, level) in trade.iter_mut().zip(&self.trade) {
            *packed = L::pack_level(level).ok_or_else(|| self.too_large())?;
        }
        for (packed, level) in bids.iter_mut().zip(&*self.bids) {
            *packed = L::pack_level(level).ok_or_else(|| self.too_large())?;
        }
        for (packed, level) in asks.iter_mut().zip(&*self.asks) {
            *packed = L::pack_level(level).ok_or_else(|| self.too_large())?;
        }
        Ok(())
    }

    /// Error for the number that has more digits than its field.
    #[cold]
    fn too_large(&self) -> EncodeError {
        let (price_max, max) = (digits(PRICE_BYTES), digits(L::QUANTITY_BYTES));
        let all = || self.trade.iter().chain(self.bids.iter()).chain(self.asks.iter());
        if let Some(level) = all().find(|level| level.price.0 > price_max) {
            return EncodeError::Number { field: "price", value: level.price.0, max: price_max };
        }
        match all().find(|level| level.quantity > max) {
            Some(level) => EncodeError::Number { field: "quantity", value: level.quantity, max },
            None => {
                let value = self.cumulative_volume;
                EncodeError::Number { field: "cumulative volume", value, max }
            }
        }
    }

    #[inline]
    fn items(&self) -> Items {
        Items::new(self.trade.is_some(), self.bids.len(), self.asks.len(), self.trade_only)
    }
}

fn packed_time(time: MatchTime) -> [u8; 6] {
    let (hours, minutes, seconds, micros) = time.parts();
    let [a, b, c, d] = bcd::eight_digits((hours * 10_000 + minutes * 100 + seconds) as u32);
    debug_assert_eq!(a, 0);
    let [_, e, f, g] = bcd::eight_digits(micros as u32);
    [b, c, d, e, f, g]
}
