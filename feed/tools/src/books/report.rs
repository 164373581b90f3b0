//! State of the books at the end of a run: the busiest by level, and a digest of all.

use std::cmp::Reverse;

use market::twse::{Level, Price};
use report::screen::{Cell, Screen};
use serde::Serialize;

use super::{FeedBooks, OrderBook, OrderCounts, OrderLevel};
use crate::arbiter::SequenceDomain;
use crate::messages::{Digest, market_name};
use crate::symbols::{LotKind, SymbolBook};

/// Books to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BooksShown {
    /// The busiest ones.
    pub count: usize,
    /// Levels a side.
    pub depth: usize,
}

/// State of the books.
#[derive(Debug, Clone)]
pub struct BooksReport {
    /// Of all books.
    digest: Digest,
    /// The busiest books.
    shown: Vec<BookState>,
    orders: Option<OrderCounts>,
}

/// One instrument in a report.
#[derive(Debug, Clone)]
struct BookState {
    /// Market of a telegram, or session of MoldUDP64.
    market: String,
    symbol: String,
    lot: Option<LotKind>,
    locate: Option<u16>,
    messages: u64,
    trades: u64,
    last: (Price, u64),
    volume: u64,
    level_counts: [usize; 2],
    /// Bids and asks, as many as are shown.
    sides: [Vec<BookLevel>; 2],
    /// Of all levels.
    digest: Digest,
}

#[derive(Debug, Clone, Copy)]
struct BookLevel {
    price: Price,
    quantity: u64,
    /// Unknown of a snapshot.
    order_count: Option<u32>,
}

/// Books of a summary.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BooksDocument<'a> {
    /// Of all books.
    digest: String,
    /// Absent, as the counts below, unless the messages are of ITCH.
    live_order_count: Option<u64>,
    unknown_order_count: Option<u64>,
    contradictory_count: Option<u64>,
    refused_order_count: Option<u64>,
    /// The busiest books, as many as were asked for.
    shown: Vec<BookDocument<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct BookDocument<'a> {
    market: &'a str,
    symbol: &'a str,
    lot: Option<&'static str>,
    locate: Option<u16>,
    message_count: u64,
    trade_count: u64,
    last: Option<LevelDocument>,
    cumulative_volume: u64,
    bid_level_count: usize,
    ask_level_count: usize,
    bids: Vec<LevelDocument>,
    asks: Vec<LevelDocument>,
    digest: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LevelDocument {
    price: String,
    quantity: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_count: Option<u32>,
}

impl BooksReport {
    /// - `session_name`: name of a session of MoldUDP64.
    pub fn new(
        books: &FeedBooks,
        shown: BooksShown,
        session_name: impl Fn(SequenceDomain) -> String,
    ) -> Self {
        let symbols = books.symbols.books().iter().map(BookState::from_symbol_book);
        let mut all: Vec<BookState> = symbols.collect();
        for (domain, books) in books.orders.iter().flat_map(|orders| orders.sessions()) {
            let market = session_name(domain);
            all.extend(books.iter().map(|book| BookState::from_order_book(book, &market)));
        }
        all.sort_by_cached_key(BookState::name);
        let mut digest = Digest::default();
        for book in &all {
            digest.bytes(book.name().as_bytes());
            digest.number(book.digest.value());
        }
        all.sort_by_key(|book| Reverse(book.messages));
        all.truncate(shown.count);
        for side in all.iter_mut().flat_map(|book| &mut book.sides) {
            side.truncate(shown.depth);
        }
        let orders = books.orders.as_ref().map(|orders| orders.counts());
        let orders = orders.filter(|_| books.symbols.books().is_empty());
        BooksReport { digest, shown: all, orders }
    }

    pub(crate) fn document(&self) -> BooksDocument<'_> {
        BooksDocument {
            digest: self.digest.to_string(),
            live_order_count: self.orders.map(|orders| orders.live),
            unknown_order_count: self.orders.map(|orders| orders.unknown),
            contradictory_count: self.orders.map(|orders| orders.contradictory),
            refused_order_count: self.orders.map(|orders| orders.orders_refused),
            shown: self.shown.iter().map(BookState::document).collect(),
        }
    }

    /// Writes the digest, the counts, and a table of the books.
    pub(crate) fn write(&self, screen: &mut Screen) {
        screen.entry("", format!("digest {}", self.digest));
        if let Some(orders) = self.orders {
            screen.entry("orders", format!("{} live", orders.live));
            for (count, what) in [
                (
                    orders.unknown,
                    "messages were about orders that were added before the first message, or in missing ones",
                ),
                (orders.contradictory, "messages contradict the books"),
                (orders.orders_refused, "orders were not kept (raise --orders)"),
            ] {
                if count > 0 {
                    screen.entry("", format!("{count} {what}"));
                }
            }
        }
        if self.shown.is_empty() {
            return;
        }
        let columns = ["book", ">quantity", ">bid", ">ask", ">quantity"];
        screen.table(&columns, self.shown.iter().flat_map(BookState::rows));
    }
}

impl BookState {
    fn from_symbol_book(book: &SymbolBook) -> Self {
        let levels = |level: Level| BookLevel {
            price: level.price,
            quantity: level.quantity,
            order_count: None,
        };
        let sides =
            [book.depth.bids().map(levels).collect(), book.depth.asks().map(levels).collect()];
        BookState {
            market: market_name(book.business),
            symbol: book.symbol.as_str().trim_end().to_owned(),
            lot: Some(book.lot),
            locate: None,
            messages: book.quotes,
            trades: book.trades,
            last: (book.trade.price, book.trade.quantity),
            volume: book.cumulative_volume,
            level_counts: sides.each_ref().map(Vec::len),
            digest: digest(&sides),
            sides,
        }
    }

    fn from_order_book(book: &OrderBook, market: &str) -> Self {
        let sides = [
            book.bids().map(BookLevel::from).collect(),
            book.asks().map(BookLevel::from).collect(),
        ];
        BookState {
            market: market.to_owned(),
            symbol: book.stock.as_str().to_owned(),
            lot: None,
            locate: Some(book.locate),
            messages: book.messages,
            trades: book.trades,
            last: book.last,
            volume: book.volume,
            level_counts: book.level_counts(),
            digest: digest(&sides),
            sides,
        }
    }

    /// Market, symbol, and the lot or the locate: `TWSE 2330 round`, `SYNTHETIC1 S00001 1`.
    fn name(&self) -> String {
        let last = match (self.lot, self.locate) {
            (Some(lot), _) => lot.name().to_owned(),
            (None, locate) => locate.unwrap_or(0).to_string(),
        };
        format!("{} {} {last}", self.market, self.symbol)
    }

    fn document(&self) -> BookDocument<'_> {
        let [bids, asks] =
            self.sides.each_ref().map(|side| side.iter().map(LevelDocument::from).collect());
        let (price, quantity) = self.last;
        let last = LevelDocument { price: price.to_string(), quantity, order_count: None };
        BookDocument {
            market: &self.market,
            symbol: &self.symbol,
            lot: self.lot.map(LotKind::name),
            locate: self.locate,
            message_count: self.messages,
            trade_count: self.trades,
            last: (quantity > 0).then_some(last),
            cumulative_volume: self.volume,
            bid_level_count: self.level_counts[0],
            ask_level_count: self.level_counts[1],
            bids,
            asks,
            digest: self.digest.to_string(),
        }
    }

    /// Rows of a table: one for each level, at least one.
    fn rows(&self) -> Vec<Vec<Cell>> {
        let [bids, asks] = &self.sides;
        let name = match self.lot {
            Some(LotKind::Odd) => format!("{} odd", self.symbol),
            _ => self.symbol.clone(),
        };
        (0..bids.len().max(asks.len()).max(1))
            .map(|at| {
                let [(bid, bid_quantity), (ask, ask_quantity)] =
                    [bids, asks].map(|side| match side.get(at) {
                        Some(level) => (level.price.to_string(), level.quantity_text()),
                        None => ("-".to_owned(), String::new()),
                    });
                let name = if at == 0 { name.clone() } else { String::new() };
                [name, bid_quantity, bid, ask, ask_quantity].map(Cell::plain).into()
            })
            .collect()
    }
}

/// Digest of all levels of a book: of both sides the number of levels, and of each level its price in ten-thousandths, its
/// quantity and its number of orders, or 0.
fn digest(sides: &[Vec<BookLevel>; 2]) -> Digest {
    let mut digest = Digest::default();
    for side in sides {
        digest.number(side.len() as u64);
        for level in side {
            digest.number(level.price.0);
            digest.number(level.quantity);
            digest.number(level.order_count.unwrap_or(0).into());
        }
    }
    digest
}

impl BookLevel {
    fn quantity_text(&self) -> String {
        match self.order_count {
            Some(orders) => format!("{} ({orders})", self.quantity),
            None => self.quantity.to_string(),
        }
    }
}

impl From<OrderLevel> for BookLevel {
    fn from(level: OrderLevel) -> Self {
        let OrderLevel { price, shares: quantity, order_count } = level;
        BookLevel { price, quantity, order_count: Some(order_count) }
    }
}

impl From<&BookLevel> for LevelDocument {
    fn from(level: &BookLevel) -> Self {
        let BookLevel { price, quantity, order_count } = *level;
        LevelDocument { price: price.to_string(), quantity, order_count }
    }
}
