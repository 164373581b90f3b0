//! Data that a receiver passes on once a second: counts since the start, latencies since the last
//! interval. Two intervals circulate between receiver and watcher, so that neither waits nor
//! allocates.

use hdrhistogram::Histogram;
use market::twse::Price;
use model::latency_histogram;

use crate::arbiter::{DomainStats, LineCounts, OpenGap, SequenceDomain, Totals};
use crate::books::{BooksReport, OrderBook};
use crate::late::LateList;
use crate::quality::Quality;
use crate::recovery;
use crate::relative_latency::RelativeLatency;
use crate::symbols::SymbolBook;

/// Accounting of one line since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineStats {
    pub datagrams: u64,
    /// Bytes of UDP payload.
    pub payload_bytes: u64,
    /// Smallest and largest number of messages in a datagram with any.
    pub messages_per_datagram: Option<(u64, u64)>,
    /// Malformed telegrams, packets or messages.
    pub malformed: u64,
    /// Datagrams without a kernel time stamp.
    pub unstamped: u64,
    /// Datagrams dropped by the kernel for lack of buffer space.
    pub dropped_datagrams: u64,
    /// Messages from its first to its last, by sequence.
    pub expected: u64,
    /// Expected messages that were received.
    pub brought: u64,
    /// Outcomes of the messages.
    pub counts: LineCounts,
    /// Receive buffer, as counted by the kernel.
    pub receive_buffer_bytes: usize,
    /// System calls made to receive.
    pub syscalls: u64,
}

impl LineStats {
    /// Expected messages that were not received.
    pub fn missing(&self) -> u64 {
        self.expected - self.brought
    }

    /// True if no datagram arrived: messages that were expected are then not known.
    pub fn is_silent(&self) -> bool {
        self.datagrams == 0
    }

    /// Bounds on the messages in the datagrams that the socket dropped; equal if all datagrams
    /// contain the same number of messages.
    pub fn dropped_messages(&self) -> (u64, u64) {
        let (low, high) = self.messages_per_datagram.unwrap_or((0, 0));
        (self.dropped_datagrams * low, self.dropped_datagrams * high)
    }

    /// True if received + missing = expected, and every received message has an outcome. Datagrams
    /// that the socket dropped before the line's first message or after its last have no sequence
    /// and are not part of the sum.
    pub fn balances(&self) -> bool {
        self.counts.balances() && self.brought <= self.expected
    }
}

/// Summary of one order book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopRow {
    /// Code of the instrument.
    pub symbol: String,
    /// 1 TWSE, 2 TPEx; `None` of ITCH.
    pub business: Option<u8>,
    pub quotes: u64,
    pub trades: u64,
    /// Last trade: price and quantity; quantity 0 if none.
    pub last: (Price, u64),
    /// Best bid and ask.
    pub best: [Option<(Price, u64)>; 2],
    /// Traded today.
    pub cumulative_volume: u64,
}

impl From<&SymbolBook> for TopRow {
    fn from(book: &SymbolBook) -> Self {
        TopRow {
            symbol: book.symbol.as_str().trim_end().to_owned(),
            business: Some(book.business),
            quotes: book.quotes,
            trades: book.trades,
            last: (book.trade.price, book.trade.quantity),
            best: [book.depth.bids().next(), book.depth.asks().next()]
                .map(|level| level.map(|level| (level.price, level.quantity))),
            cumulative_volume: book.cumulative_volume,
        }
    }
}

impl From<&OrderBook> for TopRow {
    fn from(book: &OrderBook) -> Self {
        TopRow {
            symbol: book.stock.as_str().to_owned(),
            business: None,
            quotes: book.messages,
            trades: book.trades,
            last: book.last,
            best: book.best().map(|level| level.map(|level| (level.price, level.shares))),
            cumulative_volume: book.volume,
        }
    }
}

/// Missing messages by their place, the first [`GapList::MAX`] gaps.
#[derive(Debug, Clone, Default)]
pub struct GapList {
    pub gaps: Vec<OpenGap>,
    /// Gaps beyond the list.
    pub beyond_count: u64,
}

impl GapList {
    /// Gaps in the list: 24 KiB.
    pub const MAX: usize = 1024;

    /// Adds a gap that was closed.
    #[cold]
    pub(super) fn add(&mut self, gap: OpenGap) {
        if self.gaps.len() < Self::MAX { self.gaps.push(gap) } else { self.beyond_count += 1 }
    }
}

/// All counts since the start.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Lines A and B, or A alone.
    pub lines: Vec<LineStats>,
    pub totals: Totals,
    pub recovery_line: LineCounts,
    pub domains: Vec<DomainStats>,
    /// Names of MoldUDP64 domains.
    pub sessions: Vec<(SequenceDomain, String)>,
    /// The arbiter's counts add up.
    pub is_balanced: bool,
    /// Delivered messages by type: `06`, `17`, `A`, `other`.
    pub kinds: Vec<(String, u64)>,
    /// Number of order books.
    pub books: u64,
    /// Delivered messages of instruments beyond the capacity.
    pub books_refused: u64,
    /// Delivered messages that could not be decoded.
    pub undecoded: u64,
    pub recovery: Option<recovery::Counts>,
    /// Messages after the last delivered one, announced by heartbeats or the end of the session.
    pub missing_at_end: u64,
    /// Sessions that have ended.
    pub sessions_ended: u64,
    /// Digest per domain, in order of first delivery; empty unless enabled.
    pub digests: Vec<(SequenceDomain, String)>,
    /// The end of the feed was received (telegram 000000).
    pub has_ended: bool,
    pub gaps: GapList,
}

impl Counts {
    /// True if datagrams arrived and none holds a message of the protocol.
    pub fn is_foreign(&self) -> bool {
        let received: u64 = self.lines.iter().map(|line| line.counts.received).sum();
        received == 0 && self.lines.iter().any(|line| line.malformed > 0)
    }
}

/// Data of one second.
#[derive(Debug)]
pub struct ListenInterval {
    /// Since the start.
    pub elapsed_ns: u64,
    /// Since the start.
    pub counts: Counts,
    /// Kernel to application per line, since the last interval.
    pub kernel_to_app: [Histogram<u64>; 2],
    /// Match to application: line A, line B, delivered messages.
    pub match_to_app: [RelativeLatency; 3],
    /// Late datagrams, of a run that looks for them.
    pub late: LateList,
    pub top: Vec<TopRow>,
    pub notes: Vec<String>,
    /// Interface that was removed, which ends the run.
    pub gone: Option<String>,
    /// In the last interval of a run that measures it.
    pub quality: Option<Box<Quality>>,
    /// In the last interval of a run that shows its books.
    pub books: Option<Box<BooksReport>>,
}

impl Default for ListenInterval {
    fn default() -> Self {
        ListenInterval {
            elapsed_ns: 0,
            counts: Counts::default(),
            kernel_to_app: [latency_histogram(), latency_histogram()],
            match_to_app: [
                RelativeLatency::default(),
                RelativeLatency::default(),
                RelativeLatency::default(),
            ],
            late: LateList::default(),
            top: Vec::new(),
            notes: Vec::new(),
            gone: None,
            quality: None,
            books: None,
        }
    }
}

impl ListenInterval {
    /// Clears it for the next second.
    pub fn clear(&mut self) {
        self.kernel_to_app.iter_mut().for_each(Histogram::reset);
        self.match_to_app.iter_mut().for_each(RelativeLatency::clear);
        self.late.clear();
        self.top.clear();
        self.notes.clear();
    }
}
