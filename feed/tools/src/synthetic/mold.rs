//! Synthetic session of ITCH 5.0 in MoldUDP64: orders are added, executed, cancelled, replaced and
//! deleted; every reference is to a live order.

use market::itch::{
    AddOrder, Body, BookSide, Kind, Message, OrderCancel, OrderDelete, OrderExecuted, OrderReplace,
    Price, Stock, StockDirectory, SystemEvent, Timestamp, Trade,
};
use market::mold;
use model::Random;

use super::Written;
use crate::schedule::SendSchedule;

/// Largest number of live orders.
const LIVE_MAX: usize = 65_536;
/// Longest message generated.
const MESSAGE_BYTES_MAX: usize = Kind::Trade.message_bytes();
/// Length of a datagram that is sure to hold a message.
pub const DATAGRAM_BYTES_MIN: usize = mold::HEADER_BYTES + mold::BLOCK_BYTES + MESSAGE_BYTES_MAX;

/// Parameters of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoldSpec {
    /// Seed of the random generator.
    pub seed: u64,
    /// Name of the session.
    pub session: mold::MoldSession,
    /// Stocks, at most 65,535, with locates from 1.
    pub stocks: u16,
    /// Due times of the messages, which are their time stamps.
    pub schedule: SendSchedule,
    /// Time of the first message.
    pub begin: Timestamp,
}

impl MoldSpec {
    /// 3,000 stocks, 10,000 messages a second from 09:30 on.
    pub fn new(seed: u64) -> Self {
        MoldSpec {
            seed,
            session: mold::MoldSession(*b"SYNTHETIC1"),
            stocks: 3000,
            schedule: SendSchedule::paced(10_000),
            begin: Timestamp((9 * 60 + 30) * 60 * 1_000_000_000),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Order {
    reference: u64,
    locate: u16,
    side: BookSide,
    shares: u32,
    price: u32,
}

/// Endless generator of messages of one session: start of messages, the directory, then orders.
#[derive(Debug)]
pub struct MoldSession {
    random: Random,
    spec: MoldSpec,
    /// Price of each stock, by locate − 1.
    prices: Vec<u32>,
    live: Vec<Order>,
    sent: u64,
    reference: u64,
    match_number: u64,
}

impl MoldSession {
    /// Starts a session.
    pub fn new(spec: &MoldSpec) -> Self {
        let spec = MoldSpec { stocks: spec.stocks.max(1), ..*spec };
        let mut random = Random::new(spec.seed, 1);
        // From 1 to 501 dollars, in whole cents.
        let prices = (0..spec.stocks).map(|_| 10_000 + random.below(50_000) as u32 * 100).collect();
        MoldSession {
            random,
            prices,
            live: Vec::with_capacity(LIVE_MAX),
            sent: 0,
            reference: 0,
            match_number: 0,
            spec,
        }
    }

    /// Messages generated so far; the next sequence is one higher.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Writes a packet of 1 to `messages` messages to `buffer`, as many as are sure to fit; `None`
    /// without effect if the buffer is shorter than [`DATAGRAM_BYTES_MIN`]. All have the time stamp of the first,
    /// at which the packet is due.
    pub fn datagram(&mut self, buffer: &mut [u8], messages: usize) -> Option<Written> {
        let mut writer = mold::PacketWriter::new(buffer, self.spec.session, self.sent + 1).ok()?;
        let (mut count, timestamp) = (0, self.time());
        while count < messages.clamp(1, mold::MAX_COUNT.into())
            && writer.left_bytes() >= MESSAGE_BYTES_MAX
        {
            let mut bytes = [0; MESSAGE_BYTES_MAX];
            let len = self.message(timestamp).write(&mut bytes).ok()?;
            writer.push(bytes.get(..len)?).ok()?;
            count += 1;
        }
        let written = Written { bytes: writer.finish(), telegrams: count };
        (count > 0).then_some(written)
    }

    /// A packet without messages that announces the next sequence.
    pub fn heartbeat(&self, buffer: &mut [u8]) -> Option<Written> {
        self.empty(buffer, self.sent + 1, 0)
    }

    /// The packet that ends the session.
    ///
    /// - `next_sequence`: after the last message that was sent. The generator may be ahead.
    pub fn end(&self, buffer: &mut [u8], next_sequence: u64) -> Option<Written> {
        self.empty(buffer, next_sequence, mold::END_OF_SESSION)
    }

    fn empty(&self, buffer: &mut [u8], sequence: u64, count: u16) -> Option<Written> {
        let header = mold::MoldHeader { session: self.spec.session, sequence, count };
        header.write(buffer).ok()?;
        Some(Written { bytes: mold::HEADER_BYTES, telegrams: 0 })
    }

    /// Time stamp of the next message; constant at the end of the day.
    fn time(&self) -> Timestamp {
        let nanos = self.spec.begin.0.saturating_add(self.spec.schedule.due_ns(self.sent));
        Timestamp(nanos.min(DAY_NS - 1))
    }

    fn message(&mut self, timestamp: Timestamp) -> Message<'static> {
        let stocks = u64::from(self.spec.stocks);
        let n = self.sent;
        self.sent += 1;
        let (locate, body) = match n {
            0 => (0, Body::SystemEvent(SystemEvent { event: b'O' })),
            n if n <= stocks => (n as u16, Body::StockDirectory(listed(n as u16))),
            _ => self.order(),
        };
        Message { locate, tracking: 0, timestamp, body }
    }

    fn order(&mut self) -> (u16, Body<'static>) {
        let drawn = self.random.below(100);
        // Few live orders: mostly additions. Too many: removals.
        let is_full = self.live.len() == LIVE_MAX;
        if (drawn < 45 && !is_full) || self.live.len() < 100 {
            return self.add();
        }
        let at = self.random.below(self.live.len() as u64) as usize;
        let order = self.live[at];
        let part = 1 + self.random.below(order.shares.into()) as u32;
        let reference = order.reference;
        let body = match drawn {
            45..60 => {
                self.match_number += 1;
                self.shrink(at, part);
                let match_number = self.match_number;
                Body::OrderExecuted(OrderExecuted {
                    reference,
                    shares: part,
                    match_number,
                    at: None,
                })
            }
            60..68 if part < order.shares => {
                self.shrink(at, part);
                Body::OrderCancel(OrderCancel { reference, shares: part })
            }
            68..80 => {
                self.reference += 1;
                let replaced = Order {
                    reference: self.reference,
                    shares: 100 * (1 + self.random.below(9) as u32),
                    price: self.walk(order.locate),
                    ..order
                };
                self.live[at] = replaced;
                Body::OrderReplace(OrderReplace {
                    original: reference,
                    new: replaced.reference,
                    shares: replaced.shares,
                    price: Price(replaced.price.into()),
                })
            }
            80..82 => {
                self.match_number += 1;
                Body::Trade(Trade {
                    reference: 0,
                    side: BookSide::Buy,
                    shares: part,
                    stock: name(order.locate),
                    price: Price(order.price.into()),
                    match_number: self.match_number,
                })
            }
            _ => {
                self.live.swap_remove(at);
                Body::OrderDelete(OrderDelete { reference })
            }
        };
        (order.locate, body)
    }

    fn add(&mut self) -> (u16, Body<'static>) {
        let locate = 1 + self.random.below(self.spec.stocks.into()) as u16;
        let bits = self.random.below(1 << 16);
        self.reference += 1;
        let order = Order {
            reference: self.reference,
            locate,
            side: if bits & 1 == 0 { BookSide::Buy } else { BookSide::Sell },
            shares: 100 * (1 + (bits >> 1 & 7) as u32),
            price: self.walk(locate),
        };
        self.live.push(order);
        let body = Body::AddOrder(AddOrder {
            reference: order.reference,
            side: order.side,
            shares: order.shares,
            stock: name(locate),
            price: Price(order.price.into()),
            attribution: (bits >> 4 & 15 == 0).then_some(*b"NSDQ"),
        });
        (locate, body)
    }

    fn shrink(&mut self, at: usize, shares: u32) {
        self.live[at].shares -= shares;
        if self.live[at].shares == 0 {
            self.live.swap_remove(at);
        }
    }

    /// Moves the stock's price by a cent up, down or not at all.
    fn walk(&mut self, locate: u16) -> u32 {
        let step = self.random.below(3) as u32 * 100;
        let price = &mut self.prices[usize::from(locate) - 1];
        *price = (*price + step).saturating_sub(100).clamp(100, 1_000_000_000);
        *price
    }
}

const DAY_NS: u64 = 86_400_000_000_000;

/// `S00001` and so on.
fn name(locate: u16) -> Stock {
    let mut bytes = *b"S00000  ";
    let mut rest = locate;
    for byte in bytes[1..6].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    Stock::from_bytes(bytes).unwrap_or_else(|| unreachable!("digits are printable"))
}

fn listed(locate: u16) -> StockDirectory {
    StockDirectory {
        stock: name(locate),
        market_category: b'Q',
        financial_status: b'N',
        round_lot: 100,
        round_lots_only: b'N',
        issue_class: b'C',
        issue_sub_type: *b"Z ",
        authenticity: b'T',
        short_sale_threshold: b'N',
        ipo: b'N',
        luld_tier: b'1',
        etp: b'N',
        etp_leverage: 0,
        inverse: b'N',
    }
}
