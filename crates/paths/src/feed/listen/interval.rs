//! What a receiver hands over once a second: counts since the begin, latencies since the last
//! time. Two of them go round between receiver and watcher, so that neither waits nor allocates.

use hdrhistogram::Histogram;
use model::latency_histogram;
use wire::twse::Price;

use super::super::arbiter::{Domain, DomainBook, LineCounts, Totals};
use super::super::excess::Excess;
use super::super::recovery;

/// What one line brought, since the begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineBook {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of UDP payload.
    pub payload_bytes: u64,
    /// Of all datagrams those with a message: the fewest and the most messages in one.
    pub messages_per_datagram: Option<(u64, u64)>,
    /// Malformed telegrams, packets or messages.
    pub malformed: u64,
    /// Datagrams without a kernel time stamp.
    pub unstamped: u64,
    /// Datagrams that the kernel had and dropped, for want of buffer.
    pub dropped_datagrams: u64,
    /// Messages from its first to its last, by sequence.
    pub expected: u64,
    /// Those of them that it brought.
    pub brought: u64,
    /// What became of them.
    pub counts: LineCounts,
    /// Receive buffer, as the kernel counts.
    pub receive_buffer_bytes: usize,
    /// System calls made to receive.
    pub syscalls: u64,
}

impl LineBook {
    /// Messages that it did not bring.
    pub fn missing(&self) -> u64 {
        self.expected - self.brought
    }

    /// Messages in the datagrams that the socket dropped: exact when all datagrams hold the same
    /// number of messages, else the least and the most that it can have been.
    pub fn dropped_messages(&self) -> (u64, u64) {
        let (low, high) = self.messages_per_datagram.unwrap_or((0, 0));
        (self.dropped_datagrams * low, self.dropped_datagrams * high)
    }

    /// Whether brought + missing = expected, and all that was received is accounted for. What the
    /// socket dropped before the line's first message or behind its last has no sequence and so
    /// is not part of it.
    pub fn balances(&self) -> bool {
        self.counts.balances() && self.brought <= self.expected
    }
}

/// One book, as a watcher shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopRow {
    /// Code of the instrument.
    pub symbol: String,
    /// 1 TWSE, 2 TPEx.
    pub business: u8,
    /// Telegrams.
    pub quotes: u64,
    /// Trades.
    pub trades: u64,
    /// Last trade: price and quantity; quantity 0 when there was none.
    pub last: (Price, u64),
    /// Best bid and ask.
    pub best: [Option<(Price, u64)>; 2],
    /// Traded today.
    pub cumulative_volume: u64,
}

/// All counts, since the begin.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Of lines A and B, as many as there are.
    pub lines: Vec<LineBook>,
    /// Of all lines together.
    pub totals: Totals,
    /// What answers to requests brought.
    pub recovery_line: LineCounts,
    /// Every domain.
    pub domains: Vec<DomainBook>,
    /// Names of MoldUDP64 domains.
    pub sessions: Vec<(Domain, String)>,
    /// Whether the arbiter's books add up.
    pub is_balanced: bool,
    /// Delivered messages by what they are: `06`, `17`, `A`, `other`.
    pub kinds: Vec<(String, u64)>,
    /// Books of instruments.
    pub books: u64,
    /// Delivered messages of instruments for which there was no room.
    pub books_refused: u64,
    /// Delivered messages that could not be decoded.
    pub undecoded: u64,
    /// The requests for what was missing.
    pub recovery: Option<recovery::Counts>,
    /// Messages behind the last delivered one, of which heartbeats or the end of the session told.
    pub missing_at_end: u64,
    /// Sessions that have ended.
    pub sessions_ended: u64,
    /// Digest per domain, in the order in which they were first delivered; none unless asked for.
    pub digests: Vec<(Domain, String)>,
    /// The end of the feed was announced (telegram 000000).
    pub has_ended: bool,
}

/// A second's worth.
#[derive(Debug)]
pub struct Interval {
    /// Since the begin.
    pub elapsed_ns: u64,
    /// Since the begin.
    pub counts: Counts,
    /// Kernel to application per line, since the last interval.
    pub kernel_to_app: [Histogram<u64>; 2],
    /// Match to application: lines A and B, and what was delivered.
    pub match_to_app: [Excess; 3],
    /// The busiest books.
    pub top: Vec<TopRow>,
    /// What is wrong, and what to do.
    pub notes: Vec<String>,
    /// Interface that went away, which ends the run.
    pub gone: Option<String>,
}

impl Default for Interval {
    fn default() -> Self {
        Interval {
            elapsed_ns: 0,
            counts: Counts::default(),
            kernel_to_app: [latency_histogram(), latency_histogram()],
            match_to_app: [Excess::default(), Excess::default(), Excess::default()],
            top: Vec::new(),
            notes: Vec::new(),
            gone: None,
        }
    }
}

impl Interval {
    /// Makes it empty for the next second.
    pub fn clear(&mut self) {
        self.kernel_to_app.iter_mut().for_each(Histogram::reset);
        self.match_to_app.iter_mut().for_each(Excess::clear);
        self.top.clear();
        self.notes.clear();
    }
}
