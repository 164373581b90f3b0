//! Consumer of a feed: the order books of all instruments.
//!
//! Telegrams of the Taiwan exchanges are snapshots of five levels ([`Symbols`]); messages of ITCH are changes of single
//! orders ([`OrderBooks`]).

#[cfg(any(test, fuzzing))]
mod naive;
mod order_books;
mod order_table;
mod report;
mod side;

use market::itch;
use market::twse::Telegram;

#[cfg(any(test, fuzzing))]
pub use self::naive::order_book;
pub use self::order_books::{LOCATES, OrderBook, OrderBooks, OrderCounts, OrderLevel};
pub use self::report::{BooksDocument, BooksReport, BooksShown};
use crate::arbiter::SequenceDomain;
use crate::symbols::{Symbols, Update};

/// Largest number of books, and of live orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BooksCapacity {
    /// Books; an instrument of the Taiwan exchanges that is traded in both lots has two.
    pub books_max: u32,
    /// Live orders of ITCH; `None` if its books are not kept.
    pub orders_max: Option<u32>,
}

impl BooksCapacity {
    /// Books of 65,536 instruments, and none of ITCH.
    pub const SNAPSHOTS: BooksCapacity = BooksCapacity { books_max: 65_536, orders_max: None };
    /// Live orders that are sufficient for all stocks of a market.
    pub const ORDERS_MAX: u32 = 1 << 22;
}

/// Books of all instruments, of either protocol.
#[derive(Debug)]
pub struct FeedBooks {
    /// Of the Taiwan exchanges.
    pub symbols: Symbols,
    /// Of ITCH; `None` if they are not kept.
    pub orders: Option<OrderBooks>,
}

impl FeedBooks {
    pub fn new(capacity: BooksCapacity) -> Self {
        let BooksCapacity { books_max, orders_max } = capacity;
        FeedBooks {
            symbols: Symbols::new(books_max),
            orders: orders_max.map(|orders_max| OrderBooks::new(orders_max, books_max)),
        }
    }

    /// Applies a telegram.
    #[inline]
    pub fn telegram(&mut self, telegram: &Telegram<'_>) -> Update {
        self.symbols.update(telegram)
    }

    /// Applies a message of ITCH, in the order of its session.
    ///
    /// - `epoch`: restarts of the session so far.
    #[inline]
    pub fn message(&mut self, domain: SequenceDomain, epoch: u32, message: &itch::Message<'_>) {
        if let Some(orders) = &mut self.orders {
            orders.update(domain, epoch, message);
        }
    }

    /// Removes the books of a session.
    pub fn remove(&mut self, domain: SequenceDomain) {
        if let Some(orders) = &mut self.orders {
            orders.remove(domain);
        }
    }

    /// Number of books.
    pub fn book_count(&self) -> u64 {
        let of_orders = self.orders.as_ref().map_or(0, |orders| orders.counts().books);
        self.symbols.books().len() as u64 + of_orders
    }

    /// Messages of instruments beyond the capacity.
    pub fn refused_count(&self) -> u64 {
        let of_orders = self.orders.as_ref().map_or(0, |orders| orders.counts().books_refused);
        self.symbols.refused() + of_orders
    }
}
