//! Options of commands that keep order books.

use clap::Args;
use marketdata::books::{BooksCapacity, BooksShown};

#[derive(Debug, Args)]
pub(super) struct BookArgs {
    /// Keep the order books, and print the COUNT busiest at the end, with a digest of all
    #[arg(long, value_name = "COUNT")]
    books: Option<usize>,
    /// Levels a side of the books that are printed
    #[arg(long, value_name = "LEVELS", default_value_t = 5, requires = "books")]
    depth: usize,
    /// Capacity for order books; an instrument of the Taiwan exchanges traded in both lots has two
    #[arg(long, value_name = "COUNT", default_value_t = BooksCapacity::SNAPSHOTS.books_max)]
    symbols: u32,
    /// Capacity for live orders of ITCH
    #[arg(long, value_name = "COUNT", default_value_t = BooksCapacity::ORDERS_MAX)]
    orders: u32,
}

impl BookArgs {
    /// - `shows_top`: books are shown while the command runs.
    pub(super) fn capacity(&self, shows_top: bool) -> BooksCapacity {
        let keeps_orders = shows_top || self.books.is_some();
        BooksCapacity {
            books_max: self.symbols.max(1),
            orders_max: keeps_orders.then_some(self.orders.max(1)),
        }
    }

    pub(super) fn shown(&self) -> Option<BooksShown> {
        self.books.map(|count| BooksShown { count, depth: self.depth })
    }
}
