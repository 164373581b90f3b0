//! The books of ITCH once more, in the plainest way: a list of orders, from which levels are added up anew. Fuzz target
//! and property tests compare both.

use std::collections::BTreeMap;

use market::itch::{
    AddOrder, Body, BookSide, ExecutionPrice, MAX_BYTES, Message, OrderCancel, OrderDelete,
    OrderExecuted, OrderReplace, Price, Stock, Timestamp, Trade,
};
use market::mold::MoldPacket;

use super::order_books::{OrderBooks, OrderCounts, OrderLevel};
use crate::arbiter::SequenceDomain;

/// Enough for more levels a side than the array of a side holds.
const ORDERS_MAX: u32 = 200;
/// Fewer than the instruments of an input.
const BOOKS_MAX: u32 = 3;
/// Bytes of an input for each message.
const STEP_BYTES: usize = 6;

#[derive(Debug, Clone, Copy)]
struct NaiveOrder {
    locate: u16,
    side: BookSide,
    price: u64,
    shares: u32,
}

#[derive(Debug, Default)]
struct NaiveSession {
    orders: BTreeMap<u64, NaiveOrder>,
    /// Messages and trades of each book.
    books: BTreeMap<u16, (u64, u64)>,
}

#[derive(Debug, Default)]
struct NaiveBooks {
    sessions: BTreeMap<u64, NaiveSession>,
    counts: OrderCounts,
}

impl NaiveBooks {
    fn update(&mut self, session: u64, message: &Message<'_>) {
        let locate = message.locate;
        self.sessions.entry(session).or_default();
        match message.body {
            Body::AddOrder(AddOrder { reference, side, shares, price, .. }) => {
                if let Some((messages, _)) = self.book(session, locate) {
                    *messages += 1;
                    self.add(
                        session,
                        reference,
                        NaiveOrder { locate, side, price: price.0, shares },
                    );
                }
            }
            Body::OrderExecuted(OrderExecuted { reference, shares, at, .. }) => {
                let is_printed = at.is_none_or(|at| at.printable == b'Y');
                if let Some(locate) = self.take(session, reference, Some(shares))
                    && let Some((_, trades)) = self.book(session, locate)
                    && is_printed
                    && shares > 0
                {
                    *trades += 1;
                }
            }
            Body::OrderCancel(OrderCancel { reference, shares }) => {
                self.take(session, reference, Some(shares));
            }
            Body::OrderDelete(OrderDelete { reference }) => {
                self.take(session, reference, None);
            }
            Body::OrderReplace(OrderReplace { original, new, shares, price }) => {
                let order = self.sessions[&session].orders.get(&original).copied();
                self.take(session, original, None);
                if let Some(order) = order {
                    self.add(session, new, NaiveOrder { price: price.0, shares, ..order });
                }
            }
            Body::Trade(Trade { shares, .. }) => {
                if let Some((messages, trades)) = self.book(session, locate) {
                    *messages += 1;
                    *trades += u64::from(shares > 0);
                }
            }
            _ => {}
        }
    }

    fn book(&mut self, session: u64, locate: u16) -> Option<&mut (u64, u64)> {
        let count: usize = self.sessions.values().map(|session| session.books.len()).sum();
        let books = &mut self.sessions.get_mut(&session)?.books;
        if !books.contains_key(&locate) && count as u32 == BOOKS_MAX {
            self.counts.books_refused += 1;
            return None;
        }
        Some(books.entry(locate).or_default())
    }

    fn live(&self) -> usize {
        self.sessions.values().map(|session| session.orders.len()).sum()
    }

    fn add(&mut self, session: u64, reference: u64, order: NaiveOrder) {
        let is_full = self.live() as u32 == ORDERS_MAX;
        let Some(NaiveSession { orders, .. }) = self.sessions.get_mut(&session) else { return };
        if orders.contains_key(&reference) || order.shares == 0 {
            self.counts.contradictory += 1;
        } else if is_full {
            self.counts.orders_refused += 1;
        } else {
            orders.insert(reference, order);
        }
    }

    fn take(&mut self, session: u64, reference: u64, shares: Option<u32>) -> Option<u16> {
        let orders = &mut self.sessions.get_mut(&session)?.orders;
        let Some(order) = orders.get_mut(&reference) else {
            self.counts.unknown += 1;
            return None;
        };
        let locate = order.locate;
        let shares = shares.unwrap_or(order.shares);
        if shares == 0 || shares > order.shares {
            self.counts.contradictory += 1;
        }
        order.shares = order.shares.saturating_sub(shares);
        if order.shares == 0 {
            orders.remove(&reference);
        }
        self.book(session, locate)?.0 += 1;
        Some(locate)
    }

    /// Levels of a side, the best first.
    fn levels(&self, session: u64, locate: u16, side: BookSide) -> Vec<OrderLevel> {
        let mut levels: BTreeMap<u64, OrderLevel> = BTreeMap::new();
        let orders =
            self.sessions.get(&session).into_iter().flat_map(|session| session.orders.values());
        for order in orders.filter(|order| order.locate == locate && order.side == side) {
            let price = Price(order.price);
            let none = OrderLevel { price, shares: 0, order_count: 0 };
            let level = levels.entry(order.price).or_insert(none);
            level.shares += u64::from(order.shares);
            level.order_count += 1;
        }
        match side {
            BookSide::Buy => levels.into_values().rev().collect(),
            BookSide::Sell => levels.into_values().collect(),
        }
    }

    fn compare(&self, books: &OrderBooks, session: u64, locate: u16) {
        let bids = self.levels(session, locate, BookSide::Buy);
        let asks = self.levels(session, locate, BookSide::Sell);
        let Some(book) = books.find(SequenceDomain(session), locate) else {
            assert!(bids.is_empty() && asks.is_empty());
            return;
        };
        assert_eq!(book.best(), [bids.first().copied(), asks.first().copied()]);
        assert_eq!(book.level_counts(), [bids.len(), asks.len()]);
        assert_eq!(book.bids().collect::<Vec<_>>(), bids);
        assert_eq!(book.asks().collect::<Vec<_>>(), asks);
        let counts = self.sessions.get(&session).and_then(|session| session.books.get(&locate));
        assert_eq!(counts, Some(&(book.messages, book.trades)));
    }
}

/// Session, locate and body of a message that six bytes stand for; `None`: the session ends.
fn step(bytes: [u8; STEP_BYTES]) -> (u64, u16, Option<Body<'static>>) {
    let [kind, reference, place, price, shares, other] = bytes;
    let session = u64::from(place & 7 == 7);
    // Half of the messages are about one instrument.
    let locate = [1, 1, 2, 3][usize::from(place >> 3 & 3)];
    let side = if place >> 5 & 1 == 0 { BookSide::Buy } else { BookSide::Sell };
    let (reference, other) = (u64::from(reference), u64::from(other));
    let shares = u32::from(shares >> 4) * 100;
    let price = Price(u64::from(price) * 16_843_009);
    let stock = Stock::new("S").unwrap_or_else(|| unreachable!("a letter"));
    let body = match kind & 15 {
        0..6 => {
            Body::AddOrder(AddOrder { reference, side, shares, stock, price, attribution: None })
        }
        6 => Body::OrderExecuted(OrderExecuted { reference, shares, match_number: 1, at: None }),
        7 => {
            let at = ExecutionPrice { printable: if other & 1 == 0 { b'Y' } else { b'N' }, price };
            Body::OrderExecuted(OrderExecuted { reference, shares, match_number: 1, at: Some(at) })
        }
        8 => Body::OrderCancel(OrderCancel { reference, shares }),
        9..11 => Body::OrderDelete(OrderDelete { reference }),
        11..14 => {
            Body::OrderReplace(OrderReplace { original: reference, new: other, shares, price })
        }
        14 => Body::Trade(Trade { reference, side, shares, stock, price, match_number: 1 }),
        _ if other < 8 => return (session, locate, None),
        _ => Body::OrderDelete(OrderDelete { reference: other }),
    };
    (session, locate, Some(body))
}

/// Messages on a few orders of a few instruments: after each the book is that of [`NaiveBooks`]. And the messages of a
/// packet, as they are.
pub fn order_book(bytes: &[u8]) {
    let mut books = OrderBooks::new(ORDERS_MAX, BOOKS_MAX);
    let mut naive = NaiveBooks::default();
    for (number, bytes) in (0..).zip(bytes.as_chunks::<STEP_BYTES>().0) {
        let (session, locate, body) = step(*bytes);
        let Some(body) = body else {
            // The session's place is taken, or it restarts.
            books.remove(SequenceDomain(session));
            naive.sessions.remove(&session);
            continue;
        };
        let mut buffer = [0; MAX_BYTES];
        let message = Message { locate, tracking: 0, timestamp: Timestamp(number), body };
        let len = message.write(&mut buffer).expect("it fits");
        let message = Message::parse(&buffer[..len]).expect("it was written");
        books.update(SequenceDomain(session), 0, &message);
        naive.update(session, &message);
        naive.compare(&books, session, locate);
    }
    for (session, locate) in [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)] {
        naive.compare(&books, session, locate);
    }
    let book_count: usize = naive.sessions.values().map(|session| session.books.len()).sum();
    let live = naive.live() as u64;
    assert_eq!(books.counts(), OrderCounts { books: book_count as u64, live, ..naive.counts });
    packet(bytes);
}

fn packet(datagram: &[u8]) {
    let Ok(packet) = MoldPacket::parse(datagram) else { return };
    let domain = SequenceDomain::mold(&packet.header().session.0);
    let mut books = OrderBooks::new(ORDERS_MAX, BOOKS_MAX);
    let messages = || packet.messages().flatten().map(|message| message.bytes);
    for (number, bytes) in (0..).zip(messages()) {
        books.prefetch(domain, messages().take(1));
        let Ok(message) = Message::parse(bytes) else { continue };
        // Two epochs, of which the first is over once the second has begun.
        books.update(domain, number & 2, &message);
    }
    let counts = books.counts();
    assert!(counts.live <= ORDERS_MAX.into() && counts.books <= BOOKS_MAX.into());
    for (_, books) in books.sessions() {
        for book in books {
            let [bids, asks] = book.level_counts();
            assert_eq!((book.bids().count(), book.asks().count()), (bids, asks));
            let is_sorted = book.bids().is_sorted_by(|a, b| a.price > b.price)
                && book.asks().is_sorted_by(|a, b| a.price < b.price);
            assert!(is_sorted);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        #[test]
        fn books_are_those_of_a_list_of_orders(
            bytes in prop::collection::vec(any::<u8>(), 0..STEP_BYTES * 1500),
        ) {
            order_book(&bytes);
        }
    }

    #[test]
    fn corpus_of_order_books_holds() {
        testkit::corpus::replay("order_book", order_book);
    }

    /// A book with more levels than its array holds, emptied from its best level, and from its worst.
    #[test]
    fn levels_move_between_array_and_tree() {
        let all: Vec<u8> = (0..100).collect();
        let backwards: Vec<u8> = all.iter().rev().copied().collect();
        for added in [&all, &backwards] {
            for deleted in [&all, &backwards] {
                let steps = added
                    .iter()
                    .map(|n| [0, *n, 0, *n, 0x30, 0])
                    .chain(deleted.iter().map(|n| [9, *n, 0, 0, 0, 0]));
                order_book(&steps.flatten().collect::<Vec<u8>>());
            }
        }
    }
}
