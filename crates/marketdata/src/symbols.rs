//! Order books: last trade, five levels a side and volume of every instrument.

use std::mem::size_of;

use market::twse::{
    Body, Book, Instrument, Level, Limits, Lot, Marker, Price, Status, Symbol, Telegram,
};

/// Levels a side.
pub const LEVELS: usize = 5;

/// Type of book of an instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum LotKind {
    /// Trading units: formats 06 and 17.
    Round = 0,
    /// Shares: format 23.
    Odd = 1,
}

/// One instrument in one lot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolBook {
    pub symbol: Symbol,
    /// Number of its market: 1 TWSE, 2 TPEx.
    pub business: u8,
    /// Round lots or odd lots.
    pub lot: LotKind,
    /// The last trade; none yet if the quantity is 0.
    pub trade: Level,
    /// Result of a trial match; quantity 0 outside trials.
    pub trial: Level,
    bids: [Level; LEVELS],
    asks: [Level; LEVELS],
    bid_count: u8,
    ask_count: u8,
    /// At the day's limits; halted.
    pub limits: Limits,
    /// Trial, opening, close.
    pub status: Status,
    /// Traded today, in the units of the quantities.
    pub cumulative_volume: u64,
    /// Match time of the last telegram, microseconds since midnight, Taipei time.
    pub matched_us: u64,
    /// Sequence of the last telegram.
    pub sequence: u32,
    /// Reference price of the day; 0 until the instrument was described.
    pub reference: Price,
    /// Highest price of the day; 0 until described.
    pub upper_limit: Price,
    /// Lowest price of the day; 0 until described.
    pub lower_limit: Price,
    /// Telegrams with a trade or a book.
    pub quotes: u64,
    /// Quotes with a trade, trials excluded.
    pub trades: u64,
    /// Telegrams that describe the instrument.
    pub descriptions: u64,
}

impl SymbolBook {
    /// Bids, the best first.
    pub fn bids(&self) -> &[Level] {
        &self.bids[..usize::from(self.bid_count).min(LEVELS)]
    }

    /// Asks, the best first.
    pub fn asks(&self) -> &[Level] {
        &self.asks[..usize::from(self.ask_count).min(LEVELS)]
    }

    fn new(symbol: Symbol, business: u8, lot: LotKind) -> Self {
        SymbolBook {
            symbol,
            business,
            lot,
            trade: Level::default(),
            trial: Level::default(),
            bids: Default::default(),
            asks: Default::default(),
            bid_count: 0,
            ask_count: 0,
            limits: Limits(0),
            status: Status(0),
            cumulative_volume: 0,
            matched_us: 0,
            sequence: 0,
            reference: Price(0),
            upper_limit: Price(0),
            lower_limit: Price(0),
            quotes: 0,
            trades: 0,
            descriptions: 0,
        }
    }

    #[inline]
    fn apply<L: Lot>(&mut self, book: &Book<'_, L>) {
        self.limits = book.limits();
        self.status = book.status();
        self.sequence = book.sequence();
        self.cumulative_volume = book.cumulative_volume();
        self.matched_us = book.time().map_or(self.matched_us, |time| time.micros());
        self.quotes += 1;
        let trade = book.trade().filter(|trade| trade.quantity > 0);
        if self.status.is_trial() {
            self.trial = trade.unwrap_or_default();
        } else {
            self.trial = Level::default();
            if let Some(trade) = trade {
                self.trade = trade;
                self.trades += 1;
            }
        }
        if book.is_trade_only() {
            return;
        }
        self.bid_count = fill(&mut self.bids, book.bids());
        self.ask_count = fill(&mut self.asks, book.asks());
    }

    fn describe(&mut self, instrument: &Instrument<'_>) {
        self.reference = instrument.reference();
        self.upper_limit = instrument.upper_limit();
        self.lower_limit = instrument.lower_limit();
        self.descriptions += 1;
    }
}

#[inline]
fn fill(levels: &mut [Level; LEVELS], from: impl Iterator<Item = Level>) -> u8 {
    let mut count = 0;
    for (level, found) in levels.iter_mut().zip(from) {
        *level = found;
        count += 1;
    }
    count
}

/// Effect of a telegram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Update {
    /// Changed the book at this index; see [`Symbols::book`].
    Applied(u32),
    /// The feed has ended.
    EndOfFeed,
    /// Ends a cycle of descriptions.
    EndOfCycle,
    /// Another format, which is not kept.
    Ignored,
    /// No space for another book.
    Full,
}

/// All instruments, found by market, lot and code.
///
/// Open addressing with linear probing, at most half full; nothing is allocated after
/// [`Symbols::new`], and nothing is ever removed.
#[derive(Debug)]
pub struct Symbols {
    /// Key and index of a book; key 0 in an empty slot.
    slots: Box<[(u64, u32)]>,
    shift: u32,
    books: Vec<SymbolBook>,
    books_max: u32,
    refused: u64,
}

impl Symbols {
    /// Allocates `books_max` books; an instrument traded in both lots has two.
    pub fn new(books_max: u32) -> Self {
        let books_max = books_max.clamp(1, 1 << 24);
        let slots = (books_max as usize * 2).next_power_of_two();
        Symbols {
            slots: vec![(0, 0); slots].into_boxed_slice(),
            shift: 64 - slots.trailing_zeros(),
            books: Vec::with_capacity(books_max as usize),
            books_max,
            refused: 0,
        }
    }

    /// Applies a telegram.
    #[inline]
    pub fn update(&mut self, telegram: &Telegram<'_>) -> Update {
        match telegram.body() {
            Body::Quote(quote) => self.quote(LotKind::Round, &quote),
            Body::OddLot(odd) => self.quote(LotKind::Odd, &odd),
            Body::Instrument(instrument) => self.instrument(&instrument),
            Body::Other(_) => Update::Ignored,
        }
    }

    #[inline]
    fn quote<L: Lot>(&mut self, lot: LotKind, book: &Book<'_, L>) -> Update {
        if book.is_end_of_feed() {
            return Update::EndOfFeed;
        }
        let Some(at) = self.enter(book.symbol(), book.business().to_wire(), lot) else {
            return Update::Full;
        };
        self.books[at as usize].apply(book);
        Update::Applied(at)
    }

    fn instrument(&mut self, instrument: &Instrument<'_>) -> Update {
        if instrument.marker() != Marker::Instrument {
            return Update::EndOfCycle;
        }
        let business = instrument.business().to_wire();
        let Some(at) = self.enter(instrument.symbol(), business, LotKind::Round) else {
            return Update::Full;
        };
        self.books[at as usize].describe(instrument);
        Update::Applied(at)
    }

    /// Index of the book, created if needed.
    #[inline]
    fn enter(&mut self, symbol: Symbol, business: u8, lot: LotKind) -> Option<u32> {
        let key = key(symbol, business, lot);
        let mut at = self.start(key);
        loop {
            let (there, place) = self.slots[at];
            if there == key {
                return Some(place);
            }
            if there == 0 {
                break;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        let place = self.books.len() as u32;
        if place == self.books_max {
            self.refused += 1;
            return None;
        }
        self.slots[at] = (key, place);
        self.books.push(SymbolBook::new(symbol, business, lot));
        Some(place)
    }

    #[inline]
    fn start(&self, key: u64) -> usize {
        // Fibonacci hashing: codes differ in a few digits in the middle of the key.
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    /// The book of an instrument.
    pub fn find(&self, symbol: Symbol, business: u8, lot: LotKind) -> Option<&SymbolBook> {
        let key = key(symbol, business, lot);
        let mut at = self.start(key);
        loop {
            match self.slots[at] {
                (0, _) => return None,
                (there, place) if there == key => return self.books.get(place as usize),
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// The book at an index from [`Update::Applied`].
    pub fn book(&self, place: u32) -> Option<&SymbolBook> {
        self.books.get(place as usize)
    }

    /// All books, in order of first arrival.
    pub fn books(&self) -> &[SymbolBook] {
        &self.books
    }

    /// Telegrams refused for lack of space.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The `count` books with the most telegrams, busiest first. Allocates.
    pub fn busiest(&self, count: usize) -> Vec<&SymbolBook> {
        let mut all: Vec<&SymbolBook> = self.books.iter().collect();
        let busy = |book: &&SymbolBook| (std::cmp::Reverse(book.quotes), book.symbol);
        if count < all.len() {
            all.select_nth_unstable_by_key(count, busy);
            all.truncate(count);
        }
        all.sort_unstable_by_key(busy);
        all
    }

    /// Bytes of memory held, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.slots.len() * size_of::<(u64, u32)>() + self.books.capacity() * size_of::<SymbolBook>()
    }
}

/// Market, lot and code as one number, never 0.
#[inline]
fn key(symbol: Symbol, business: u8, lot: LotKind) -> u64 {
    // A code is printable, so its bits are never all 0.
    u64::from(business) << 56 | u64::from(lot as u8) << 48 | symbol.to_u64()
}
