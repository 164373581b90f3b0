//! Order books: last trade, five levels a side and volume of every instrument.

use std::mem::size_of;

use market::twse::{
    self, Ahead, Body, Book, Depth, Level, Lot, PriceLimits, Status, Symbol, Telegram,
};

/// Type of book of an instrument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum LotKind {
    /// Trading units: formats 06 and 17.
    Round = 0,
    /// Shares: format 23.
    Odd = 1,
}

impl LotKind {
    /// As in documents.
    pub fn name(self) -> &'static str {
        match self {
            LotKind::Round => "round",
            LotKind::Odd => "odd",
        }
    }
}

/// One instrument in one lot: three cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
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
    /// Bids and asks.
    pub depth: Depth,
    /// At the day's limits; halted.
    pub limits: PriceLimits,
    /// Trial, opening, close.
    pub status: Status,
    /// Traded today, in the units of the quantities.
    pub cumulative_volume: u64,
    /// Sequence of the last telegram.
    pub sequence: u32,
    /// Telegrams with a trade or a book.
    pub quotes: u64,
    /// Quotes with a trade, trials excluded.
    pub trades: u64,
}

const _: () = assert!(size_of::<SymbolBook>() == 192);

impl SymbolBook {
    fn new(symbol: Symbol, business: u8, lot: LotKind) -> Self {
        SymbolBook {
            symbol,
            business,
            lot,
            trade: Level::default(),
            trial: Level::default(),
            depth: Depth::default(),
            limits: PriceLimits(0),
            status: Status(0),
            cumulative_volume: 0,
            sequence: 0,
            quotes: 0,
            trades: 0,
        }
    }

    #[inline]
    fn apply<L: Lot>(&mut self, book: &Book<'_, L>) {
        self.limits = book.limits();
        self.status = book.status();
        self.sequence = book.sequence();
        self.cumulative_volume = book.cumulative_volume();
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
        if !book.is_trade_only() {
            self.depth.set(book);
        }
    }
}

/// Effect of a telegram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Update {
    /// Changed the book at this index; see [`Symbols::book`].
    Applied(u32),
    /// The feed has ended.
    EndOfFeed,
    /// A description of an instrument or another format, which is not kept.
    Ignored,
    /// No space for another book.
    Full,
}

/// Number of a book plus one, and above it eight bits of its hash: a book of another instrument is read
/// once in 256 times.
type Slot = u32;
const EMPTY: Slot = 0;
const TAG: Slot = 0xff << BOOKS_MAX.count_ones();
/// Largest number of books.
const BOOKS_MAX: u32 = (1 << 24) - 1;

/// All instruments, found by market, lot and code.
///
/// Open addressing with linear probing, at most half full; nothing is allocated after
/// [`Symbols::new`], and nothing is ever removed.
#[derive(Debug)]
pub struct Symbols {
    /// [`Slot`]s: all of them fit into a near cache.
    slots: Box<[Slot]>,
    shift: u32,
    books: Vec<SymbolBook>,
    books_max: u32,
    refused: u64,
}

impl Symbols {
    /// Allocates `books_max` books; an instrument traded in both lots has two.
    pub fn new(books_max: u32) -> Self {
        let books_max = books_max.clamp(1, BOOKS_MAX);
        let slots = (books_max as usize * 2).next_power_of_two();
        let mut books = Vec::with_capacity(books_max as usize);
        sys::cache::prefer_huge_pages(books.spare_capacity_mut());
        Symbols {
            slots: vec![EMPTY; slots].into_boxed_slice(),
            shift: 64 - slots.trailing_zeros(),
            books,
            books_max,
            refused: 0,
        }
    }

    /// Begins to fetch the books of a datagram's telegrams into the near cache, all at the same time. Without it the
    /// core waits for one after the other.
    #[inline]
    pub fn prefetch(&self, datagram: &[u8]) {
        for Ahead { business, is_odd_lot, symbol } in twse::ahead(datagram) {
            let lot = if is_odd_lot { LotKind::Odd } else { LotKind::Round };
            let (mut at, tag) = self.start(&symbol, business.to_wire(), lot);
            while self.slots[at] != EMPTY && self.slots[at] & TAG != tag {
                at = (at + 1) & (self.slots.len() - 1);
            }
            let place = (self.slots[at] & !TAG).wrapping_sub(1);
            if let Some(book) = self.books.get(place as usize) {
                sys::cache::prefetch(book);
            }
        }
    }

    /// Applies a telegram.
    #[inline]
    pub fn update(&mut self, telegram: &Telegram<'_>) -> Update {
        match telegram.body() {
            Body::Quote(quote) => self.quote(LotKind::Round, &quote),
            Body::OddLot(odd) => self.quote(LotKind::Odd, &odd),
            Body::Instrument(_) | Body::Other(_) => Update::Ignored,
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

    /// Index of the book, created if needed.
    #[inline]
    fn enter(&mut self, symbol: Symbol, business: u8, lot: LotKind) -> Option<u32> {
        match self.search(symbol, business, lot) {
            Ok(place) => Some(place),
            Err(free) => self.create(free, SymbolBook::new(symbol, business, lot)),
        }
    }

    #[cold]
    fn create(&mut self, free: usize, book: SymbolBook) -> Option<u32> {
        let place = self.books.len() as u32;
        if place == self.books_max {
            self.refused += 1;
            return None;
        }
        let (_, tag) = self.start(&book.symbol, book.business, book.lot);
        self.slots[free] = tag | (place + 1);
        self.books.push(book);
        Some(place)
    }

    /// Index of a book.
    ///
    /// Errors: the slot that is free for it.
    #[inline]
    fn search(&self, symbol: Symbol, business: u8, lot: LotKind) -> Result<u32, usize> {
        let (mut at, tag) = self.start(&symbol, business, lot);
        loop {
            let slot = self.slots[at];
            if slot == EMPTY {
                return Err(at);
            }
            if slot & TAG == tag {
                let place = (slot & !TAG) - 1;
                let book = &self.books[place as usize];
                if book.symbol == symbol && book.business == business && book.lot == lot {
                    return Ok(place);
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// First slot to search, and the tag of the book.
    #[inline]
    fn start(&self, symbol: &Symbol, business: u8, lot: LotKind) -> (usize, Slot) {
        let key = u64::from(business) << 56 | u64::from(lot as u8) << 48 | symbol.to_u64();
        // Fibonacci hashing: codes differ in a few digits in the middle of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> self.shift) as usize, hash as u32 & TAG)
    }

    /// The book of an instrument.
    pub fn find(&self, symbol: Symbol, business: u8, lot: LotKind) -> Option<&SymbolBook> {
        self.search(symbol, business, lot).ok().and_then(|place| self.book(place))
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
        self.slots.len() * size_of::<Slot>() + self.books.capacity() * size_of::<SymbolBook>()
    }
}
