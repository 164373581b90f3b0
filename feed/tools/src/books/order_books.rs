//! Order books of ITCH: every order of every instrument.

use market::itch::{self, AddOrder, Body, BookSide, OrderReplace, Price, Stock};

use super::order_table::{LiveOrder, OrderTable, SLOTS_MIN, rank};
use super::side::{Side, SideLevel};
use crate::arbiter::SequenceDomain;

/// Instruments of ITCH: 16 bits number them.
pub const LOCATES: u32 = 1 << 16;
/// Sessions with books: as many as an arbiter has domains by default.
const SESSIONS_MAX: usize = 64;
/// Books for which there is space from the first one on.
const BOOKS_MIN: usize = 16;

/// Book of an instrument.
#[derive(Debug)]
#[repr(C)]
pub struct OrderBook {
    /// Messages about its orders and trades.
    pub messages: u64,
    pub stock: Stock,
    pub trades: u64,
    /// Price and shares of the last trade; no shares before the first.
    pub last: (Price, u64),
    /// Shares traded, those of crosses and of orders that were not displayed included.
    pub volume: u64,
    /// Index of the instrument for the day.
    pub locate: u16,
    bids: Side,
    asks: Side,
}

/// A cache line, and four for each side.
const _: () = assert!(size_of::<OrderBook>() == 9 * 64);

/// Level of an order book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderLevel {
    pub price: Price,
    pub shares: u64,
    pub order_count: u32,
}

/// Counts of order books.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Books of all sessions.
    pub books: u64,
    /// Orders that are live.
    pub live: u64,
    /// Messages about an order that is not known: it was added before the first message that was received, in a
    /// missing message, or beyond the capacity.
    pub unknown: u64,
    /// Messages that contradict the book: an order that is there is added again, more shares are taken than it has, or
    /// an order has none.
    pub contradictory: u64,
    /// Orders beyond the capacity.
    pub orders_refused: u64,
    /// Orders and trades of instruments and sessions beyond the capacity.
    pub books_refused: u64,
}

/// Counts and capacity of all sessions.
#[derive(Debug)]
struct Account {
    counts: OrderCounts,
    orders_max: u64,
    books_max: u64,
    /// Slots of all tables of orders.
    slots: usize,
    slots_max: usize,
}

/// Orders and books of one session of MoldUDP64.
#[derive(Debug)]
struct SessionBooks {
    domain: SequenceDomain,
    epoch: u32,
    orders: OrderTable,
    /// Index of the book plus one, by locate; 0 if there is none.
    places: Vec<u32>,
    books: Vec<OrderBook>,
}

/// Order books of all sessions of MoldUDP64, each of which has its own orders and instruments.
///
/// A message takes the same time whatever the number of orders and levels; only a level far from the best one takes
/// logarithmic time. Memory is bounded: 32 bytes for each of 2 to 4 times the orders, and half as much more while the
/// table of orders doubles; 576 bytes for each of up to twice the books, and up to 48 for each level of a side beyond
/// its 14 best.
#[derive(Debug)]
pub struct OrderBooks {
    sessions: Vec<SessionBooks>,
    account: Account,
}

impl OrderBook {
    /// Key that sorts the busiest book first.
    fn rank(&self) -> (std::cmp::Reverse<u64>, Stock, u16) {
        (std::cmp::Reverse(self.messages), self.stock, self.locate)
    }

    fn new(locate: u16, stock: Stock) -> Self {
        OrderBook {
            locate,
            stock,
            bids: Side::default(),
            asks: Side::default(),
            messages: 0,
            trades: 0,
            last: (Price(0), 0),
            volume: 0,
        }
    }

    /// Bids, the best first.
    pub fn bids(&self) -> impl Iterator<Item = OrderLevel> {
        self.bids.levels().map(|level| OrderLevel::new(BookSide::Buy, level))
    }

    /// Asks, the best first.
    pub fn asks(&self) -> impl Iterator<Item = OrderLevel> {
        self.asks.levels().map(|level| OrderLevel::new(BookSide::Sell, level))
    }

    /// Best bid and ask.
    #[inline]
    pub fn best(&self) -> [Option<OrderLevel>; 2] {
        [
            self.bids.best().map(|level| OrderLevel::new(BookSide::Buy, level)),
            self.asks.best().map(|level| OrderLevel::new(BookSide::Sell, level)),
        ]
    }

    /// Numbers of bid and ask levels.
    pub fn level_counts(&self) -> [usize; 2] {
        [self.bids.level_count(), self.asks.level_count()]
    }

    #[inline]
    fn side(&mut self, side: BookSide) -> &mut Side {
        match side {
            BookSide::Buy => &mut self.bids,
            BookSide::Sell => &mut self.asks,
        }
    }

    #[inline]
    fn trade(&mut self, price: Price, shares: u64) {
        if shares > 0 {
            self.trades += 1;
            self.last = (price, shares);
            self.volume = self.volume.saturating_add(shares);
        }
    }
}

impl OrderLevel {
    #[inline]
    fn new(side: BookSide, level: &SideLevel) -> Self {
        OrderLevel {
            price: Price(rank(side, level.rank).into()),
            shares: level.shares,
            order_count: level.order_count,
        }
    }
}

impl Account {
    /// True if an order more fits into a session's table, which may double for it. Otherwise it is counted.
    #[inline]
    fn has_space(&mut self, orders: &mut OrderTable) -> bool {
        let is_free = self.counts.live < self.orders_max
            && (!orders.is_half_full() || self.has_doubled(orders));
        self.counts.orders_refused += u64::from(!is_free);
        is_free
    }

    #[cold]
    fn has_doubled(&mut self, orders: &mut OrderTable) -> bool {
        let more = orders.slot_count();
        let fits = self.slots + more <= self.slots_max;
        if fits {
            orders.grow();
            self.slots += more;
        }
        fits
    }
}

impl SessionBooks {
    fn new(domain: SequenceDomain, epoch: u32, account: &mut Account) -> Self {
        let orders = OrderTable::new();
        account.slots += orders.slot_count();
        SessionBooks { domain, epoch, orders, places: Vec::new(), books: Vec::new() }
    }

    fn close(&self, account: &mut Account) {
        account.slots -= self.orders.slot_count();
        account.counts.live -= self.orders.len() as u64;
        account.counts.books -= self.books.len() as u64;
    }

    /// Index of a book, if it is there.
    #[inline]
    fn place(&self, locate: u16) -> Option<usize> {
        let place = self.places.get(usize::from(locate))?;
        place.checked_sub(1).map(|place| place as usize)
    }

    /// Book of a message that is read without a check.
    #[inline]
    fn book_ahead(&self, message: &[u8]) -> Option<&OrderBook> {
        let &[_, high, low, ..] = message else { return None };
        self.books.get(self.place(u16::from_be_bytes([high, low]))?)
    }

    /// Index of a book, created if needed; `None`, and counted, if there is no space.
    #[inline]
    fn enter(&mut self, locate: u16, stock: Stock, account: &mut Account) -> Option<usize> {
        self.place(locate).or_else(|| self.create(locate, stock, account))
    }

    #[cold]
    fn create(&mut self, locate: u16, stock: Stock, account: &mut Account) -> Option<usize> {
        if account.counts.books >= account.books_max {
            account.counts.books_refused += 1;
            return None;
        }
        account.counts.books += 1;
        let at = usize::from(locate);
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if self.books.len() == self.books.capacity() {
            self.double_books();
        }
        self.books.push(OrderBook::new(locate, stock));
        self.places[at] = self.books.len() as u32;
        Some(self.books.len() - 1)
    }

    #[cold]
    fn double_books(&mut self) {
        let mut books = Vec::with_capacity((self.books.len() * 2).max(BOOKS_MIN));
        sys::cache::prefer_huge_pages(books.spare_capacity_mut());
        books.append(&mut self.books);
        self.books = books;
    }

    #[inline]
    fn update(&mut self, message: &itch::Message<'_>, account: &mut Account) {
        let locate = message.locate;
        match &message.body {
            Body::AddOrder(add) => {
                let Some(book) = self.enter(locate, add.stock, account) else { return };
                self.books[book].messages += 1;
                // A price of ITCH has 32 bits.
                let rank = rank(add.side, add.price.0 as u32);
                let AddOrder { reference, side, shares, .. } = *add;
                let order = LiveOrder { reference, book: book as u32, rank, shares, side };
                self.add(order, account);
            }
            Body::OrderExecuted(executed) => {
                let taken = self.take(executed.reference, Some(executed.shares), account);
                let Some((book, price)) = taken else { return };
                let (price, is_printed) = match executed.at {
                    Some(execution) => (execution.price, execution.printable == b'Y'),
                    None => (price, true),
                };
                if is_printed {
                    book.trade(price, executed.shares.into());
                }
            }
            Body::OrderCancel(cancel) => {
                self.take(cancel.reference, Some(cancel.shares), account);
            }
            Body::OrderDelete(delete) => {
                self.take(delete.reference, None, account);
            }
            Body::OrderReplace(replace) => self.replace(replace, account),
            Body::Trade(trade) => {
                if let Some(book) = self.enter(locate, trade.stock, account) {
                    self.books[book].messages += 1;
                    self.books[book].trade(trade.price, trade.shares.into());
                }
            }
            Body::CrossTrade(cross) => {
                if let Some(book) = self.enter(locate, cross.stock, account) {
                    self.books[book].messages += 1;
                    self.books[book].trade(cross.price, cross.shares);
                }
            }
            Body::SystemEvent(_)
            | Body::StockDirectory(_)
            | Body::BrokenTrade(_)
            | Body::Other { .. } => {}
        }
    }

    #[inline]
    fn add(&mut self, order: LiveOrder, account: &mut Account) {
        match self.orders.find(order.reference) {
            Err(free) if order.shares > 0 => {
                let free = if self.orders.is_half_full() { None } else { Some(free) };
                if !account.has_space(&mut self.orders) {
                    return;
                }
                // A table that has doubled has other places.
                let free = free.or_else(|| self.orders.find(order.reference).err());
                let Some(free) = free else { return };
                self.orders.enter(free, order);
                account.counts.live += 1;
                let book = &mut self.books[order.book as usize];
                book.side(order.side).add(order.rank, order.shares);
            }
            _ => account.counts.contradictory += 1,
        }
    }

    /// Takes shares from an order, or all of it; returns its book and its price. `None`, and counted, if it is not
    /// known.
    #[inline]
    fn take(
        &mut self,
        reference: u64,
        shares: Option<u32>,
        account: &mut Account,
    ) -> Option<(&mut OrderBook, Price)> {
        match self.orders.find(reference) {
            Ok(slot) => {
                let (book, order) = self.take_at(slot, shares, account);
                Some((book, Price(rank(order.side, order.rank).into())))
            }
            Err(_) => {
                account.counts.unknown += 1;
                None
            }
        }
    }

    /// Takes shares from the order of a slot, or all of it; returns its book and what it was.
    #[inline]
    fn take_at(
        &mut self,
        slot: usize,
        shares: Option<u32>,
        account: &mut Account,
    ) -> (&mut OrderBook, LiveOrder) {
        let order = self.orders.order(slot);
        let was = *order;
        let wanted = shares.unwrap_or(order.shares);
        account.counts.contradictory += u64::from(wanted > order.shares || wanted == 0);
        let taken = wanted.min(order.shares);
        order.shares -= taken;
        let is_last = order.shares == 0;
        if is_last {
            self.orders.remove(slot);
            account.counts.live -= 1;
        }
        let book = &mut self.books[was.book as usize];
        book.messages += 1;
        book.side(was.side).take(was.rank, taken, is_last);
        (book, was)
    }

    #[inline]
    fn replace(&mut self, replace: &OrderReplace, account: &mut Account) {
        let Ok(slot) = self.orders.find(replace.original) else {
            account.counts.unknown += 1;
            return;
        };
        let (_, LiveOrder { book, side, .. }) = self.take_at(slot, None, account);
        let OrderReplace { new: reference, shares, price, .. } = *replace;
        let rank = rank(side, price.0 as u32);
        self.add(LiveOrder { reference, book, rank, shares, side }, account);
    }
}

impl OrderBooks {
    /// - `orders_max`: live orders of all sessions.
    /// - `books_max`: books of all sessions.
    pub fn new(orders_max: u32, books_max: u32) -> Self {
        let slots = (orders_max.max(1) as usize * 2).next_power_of_two();
        OrderBooks {
            sessions: Vec::new(),
            account: Account {
                counts: OrderCounts::default(),
                orders_max: orders_max.into(),
                books_max: books_max.into(),
                slots: 0,
                // A table of the least size for each other session.
                slots_max: slots.max(SLOTS_MIN) + SLOTS_MIN * SESSIONS_MAX,
            },
        }
    }

    /// Counts since the start; books and live orders are those that are there.
    pub fn counts(&self) -> OrderCounts {
        self.account.counts
    }

    /// Books of each session, in order of their first messages.
    pub fn sessions(&self) -> impl Iterator<Item = (SequenceDomain, &[OrderBook])> {
        self.sessions.iter().map(|session| (session.domain, &*session.books))
    }

    /// The `count` books with the most messages, busiest first. Allocates.
    pub fn busiest(&self, count: usize) -> Vec<&OrderBook> {
        let mut all: Vec<&OrderBook> = self.sessions().flat_map(|(_, books)| books).collect();
        if count < all.len() {
            all.select_nth_unstable_by_key(count, |book| book.rank());
            all.truncate(count);
        }
        all.sort_unstable_by_key(|book| book.rank());
        all
    }

    /// Book of an instrument.
    pub fn find(&self, domain: SequenceDomain, locate: u16) -> Option<&OrderBook> {
        let session = self.sessions.iter().find(|session| session.domain == domain)?;
        session.books.get(session.place(locate)?)
    }

    /// Removes the books of a session.
    pub fn remove(&mut self, domain: SequenceDomain) {
        let OrderBooks { sessions, account } = self;
        sessions.retain(|session| {
            let stays = session.domain != domain;
            if !stays {
                session.close(account);
            }
            stays
        });
    }

    /// Begins to fetch the orders, books and levels of a packet's messages into the near cache, all at the same time. Without
    /// it the core waits for one after the other.
    ///
    /// - `messages`: their bytes.
    #[inline]
    pub fn prefetch<'a>(&self, domain: SequenceDomain, messages: impl Iterator<Item = &'a [u8]>) {
        let Some(session) = self.sessions.iter().find(|session| session.domain == domain) else {
            return;
        };
        for message in messages {
            if let Some(reference) = itch::order_reference(message) {
                session.orders.prefetch(reference);
            }
            if let Some(book) = session.book_ahead(message) {
                sys::cache::prefetch(&book.messages);
                book.bids.prefetch();
                book.asks.prefetch();
            }
        }
    }

    /// Applies a message.
    ///
    /// - `epoch`: restarts of the session so far; its books begin anew with each, and messages of earlier ones are not
    ///   of them.
    #[inline]
    pub fn update(&mut self, domain: SequenceDomain, epoch: u32, message: &itch::Message<'_>) {
        let OrderBooks { sessions, account } = self;
        match sessions.iter_mut().find(|session| session.domain == domain) {
            Some(session) if session.epoch == epoch => session.update(message, account),
            Some(session) if session.epoch > epoch => {}
            _ => self.begin(domain, epoch, message),
        }
    }

    /// Begins the books of a session or of an epoch with its first message.
    #[cold]
    fn begin(&mut self, domain: SequenceDomain, epoch: u32, message: &itch::Message<'_>) {
        self.remove(domain);
        let OrderBooks { sessions, account } = self;
        if sessions.len() == SESSIONS_MAX {
            account.counts.books_refused += 1;
            return;
        }
        let mut session = SessionBooks::new(domain, epoch, account);
        session.update(message, account);
        sessions.push(session);
    }
}
