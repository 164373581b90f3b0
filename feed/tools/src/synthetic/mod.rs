//! Synthetic session of the Taiwan exchanges: the same seed gives the same bytes.
//!
//! Prices move by valid ticks between the day's limits, books are sorted and never cross, match
//! times rise, and every business and format has its own sequence; format 01 restarts with every
//! cycle.

mod mold;

pub use mold::{DATAGRAM_BYTES_MIN, MoldSession, MoldSpec};

use market::twse::{
    Business, FORMAT_INSTRUMENT, FORMAT_ODD_LOT, FORMAT_QUOTE, FORMAT_WARRANT, InstrumentRepr,
    Level, Levels, Marker, Marks, MatchTime, OddLotRepr, Price, PriceLimits, QuoteRepr, Status,
    Symbol, Warrant,
};
use model::Random;

use crate::schedule::SendSchedule;

/// Longest telegram of a session: an odd lot with all fields.
pub const TELEGRAM_BYTES_MAX: usize = 155;
/// Smallest number of instruments in a cycle of descriptions: a shorter cycle looks like
/// duplicates. Instruments beyond the traded ones are listed but never traded.
const CYCLE_MIN: u32 = 128;

const STOCK: usize = 0;
const WARRANT: usize = 2;

/// Parameters of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyntheticSpec {
    /// Seed of the random generator.
    pub seed: u64,
    /// Traded instruments: a fifth TWSE stocks, a tenth TPEx stocks, the rest warrants of both.
    pub symbols: u32,
    /// Due times of the telegrams, which are their match times.
    pub schedule: SendSchedule,
    /// Time of the first match.
    pub begin: MatchTime,
    /// Shares of the formats.
    pub mix: Mix,
}

impl SyntheticSpec {
    /// 3,000 instruments, 10,000 telegrams a second from 09:00 on, the usual mix.
    pub fn new(seed: u64) -> Self {
        let nine = 9 * 3600 * 1_000_000;
        SyntheticSpec {
            seed,
            symbols: 3000,
            schedule: SendSchedule::paced(10_000),
            begin: MatchTime::from_micros(nine).unwrap_or_else(|| unreachable!("nine is a time")),
            mix: Mix::default(),
        }
    }
}

/// Relative frequency of each format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// Format 06.
    pub quote: u32,
    /// Format 17.
    pub warrant: u32,
    /// Format 23.
    pub odd_lot: u32,
    /// Format 01.
    pub instrument: u32,
}

impl Default for Mix {
    fn default() -> Self {
        Mix { quote: 50, warrant: 40, odd_lot: 8, instrument: 2 }
    }
}

/// One traded instrument.
#[derive(Debug, Clone, Copy)]
struct Traded {
    symbol: Symbol,
    reference: u64,
    upper: u64,
    lower: u64,
    last: u64,
    volume: u64,
    odd_volume: u64,
    is_open: bool,
}

/// Endless generator of telegrams of one session.
#[derive(Debug)]
pub struct SyntheticSession {
    random: Random,
    traded: Vec<Traded>,
    /// End indexes of the four classes in `traded`: stocks and warrants, TWSE and TPEx of each.
    ends: [u32; 4],
    weights: [u32; 4],
    schedule: SendSchedule,
    begin_us: u64,
    sent: u64,
    /// Per business (TWSE, TPEx) and format (06, 17, 23, 01).
    sequences: [[u32; 4]; 2],
    /// Per business: number described in the current cycle.
    described: [u32; 2],
}

/// Size of a generated datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub bytes: usize,
    /// Number of telegrams or messages.
    pub telegrams: usize,
}

impl SyntheticSession {
    /// Starts a session.
    pub fn new(spec: &SyntheticSpec) -> Self {
        let symbols = spec.symbols.clamp(1, 60_000);
        // At least one TWSE stock; the other classes if there are enough.
        let twse_stocks = (symbols / 5).max(1);
        let tpex_stocks = symbols / 10;
        let tpex_warrants = symbols / 5;
        let ends = [twse_stocks, twse_stocks + tpex_stocks, symbols - tpex_warrants, symbols];
        let mut random = Random::new(spec.seed, 0);
        let traded = (0..symbols).map(|n| Traded::new(n, ends, &mut random)).collect();
        let Mix { quote, warrant, odd_lot, instrument } = spec.mix;
        let has_warrants = ends[3] > ends[1];
        let mut weights = [quote, if has_warrants { warrant } else { 0 }, odd_lot, instrument];
        if weights.iter().all(|weight| *weight == 0) {
            weights[0] = 1;
        }
        SyntheticSession {
            random,
            traded,
            ends,
            weights,
            schedule: spec.schedule,
            begin_us: spec.begin.micros(),
            sent: 0,
            sequences: Default::default(),
            described: [0; 2],
        }
    }

    /// Telegrams generated so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Telegrams generated so far of a business and a format.
    pub fn sequence(&self, business: Business, format: u8) -> u32 {
        let slot = match format {
            FORMAT_QUOTE => 0,
            FORMAT_WARRANT => 1,
            FORMAT_ODD_LOT => 2,
            FORMAT_INSTRUMENT => 3,
            _ => return 0,
        };
        match business {
            Business::Twse => self.sequences[0][slot],
            Business::Tpex => self.sequences[1][slot],
            Business::Other(_) => 0,
        }
    }

    /// Writes the next telegram to the start of `buffer` and returns its length; `None` without
    /// effect if the buffer is shorter than [`TELEGRAM_BYTES_MAX`].
    pub fn telegram(&mut self, buffer: &mut [u8]) -> Option<usize> {
        self.telegram_at(self.time(), buffer)
    }

    fn telegram_at(&mut self, time: Option<MatchTime>, buffer: &mut [u8]) -> Option<usize> {
        if buffer.len() < TELEGRAM_BYTES_MAX {
            return None;
        }
        let total: u32 = self.weights.iter().sum();
        let mut drawn = self.random.below(u64::from(total)) as u32;
        let mut slot = 0;
        while drawn >= self.weights[slot] {
            drawn -= self.weights[slot];
            slot += 1;
        }
        let written = match slot {
            0 => self.quote(STOCK, FORMAT_QUOTE, time, buffer),
            1 => self.quote(WARRANT, FORMAT_WARRANT, time, buffer),
            2 => self.odd_lot(time, buffer),
            _ => self.instrument(buffer),
        };
        self.sent += 1;
        written
    }

    /// Writes 1 to `telegrams` telegrams to `buffer`, as many as are sure to fit; `None` without
    /// effect if not even one is. All have the match time of the first, at which the datagram is due.
    pub fn datagram(&mut self, buffer: &mut [u8], telegrams: usize) -> Option<Written> {
        let time = self.time();
        let mut written = Written { bytes: self.telegram_at(time, buffer)?, telegrams: 1 };
        while written.telegrams < telegrams {
            let Some(rest) = buffer.get_mut(written.bytes..) else { break };
            let Some(bytes) = self.telegram_at(time, rest) else { break };
            written.bytes += bytes;
            written.telegrams += 1;
        }
        Some(written)
    }

    /// Match time of the next telegram; constant at the end of the day.
    fn time(&self) -> Option<MatchTime> {
        let micros = self.begin_us.saturating_add(self.schedule.due_ns(self.sent) / 1000);
        MatchTime::from_micros(micros.min(MatchTime::DAY_MICROS - 1))
    }

    /// An instrument of the two classes from `first` on: its index and business.
    fn pick(&mut self, first: usize) -> (usize, usize) {
        let from = first.checked_sub(1).map_or(0, |before| self.ends[before]);
        let to = self.ends[first + 1];
        let at = from + self.random.below(u64::from(to - from)) as u32;
        (at as usize, usize::from(at >= self.ends[first]))
    }

    fn next_sequence(&mut self, business: usize, slot: usize) -> u32 {
        let sequence = &mut self.sequences[business][slot];
        *sequence = if *sequence == market::twse::MAX_SEQUENCE { 1 } else { *sequence + 1 };
        *sequence
    }

    fn quote(
        &mut self,
        class: usize,
        format: u8,
        time: Option<MatchTime>,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let (at, business) = self.pick(class);
        let sequence = self.next_sequence(business, usize::from(format == FORMAT_WARRANT));
        let bits = self.random.below(1 << 32);
        let traded = &mut self.traded[at];
        traded.walk(bits);
        let has_trade = bits >> 4 & 7 < 5;
        let is_trade_only = has_trade && bits >> 8 & 31 == 0;
        let is_halted = bits >> 13 & 0x1fff == 0;
        let quantity = 1 + (bits >> 16 & 0xff);
        if has_trade && !is_halted {
            traded.volume = (traded.volume + quantity) % 100_000_000;
        }
        let status = if traded.is_open { 0x10 } else { 0x18 };
        traded.is_open = true;
        let mut quote = QuoteRepr {
            business: [Business::Twse, Business::Tpex][business],
            format,
            sequence,
            symbol: traded.symbol,
            time,
            trade_only: is_trade_only,
            limits: traded.limits(has_trade),
            status: Status(status),
            cumulative_volume: traded.volume,
            trade: has_trade.then_some(Level { price: Price(traded.last), quantity }),
            bids: Levels::default(),
            asks: Levels::default(),
            lot: std::marker::PhantomData,
        };
        if is_halted {
            // A halt publishes the price that would have been matched, and no book.
            quote.trade = Some(Level { price: Price(traded.last), quantity: 0 });
            quote.limits = PriceLimits(if bits & 1 == 0 { 0b01 } else { 0b10 });
            quote.trade_only = false;
        } else if !is_trade_only {
            (quote.bids, quote.asks) = traded.levels(bits, 999);
        }
        quote.write(buffer).ok()
    }

    fn odd_lot(&mut self, time: Option<MatchTime>, buffer: &mut [u8]) -> Option<usize> {
        let (at, business) = self.pick(STOCK);
        let sequence = self.next_sequence(business, 2);
        let bits = self.random.below(1 << 32);
        let traded = &mut self.traded[at];
        let has_trade = bits >> 4 & 3 == 0;
        let quantity = 1 + (bits >> 16) % 999;
        if has_trade {
            traded.odd_volume += quantity;
        }
        let (bids, asks) = traded.levels(bits, 99_999);
        let odd_lot = OddLotRepr {
            business: [Business::Twse, Business::Tpex][business],
            format: FORMAT_ODD_LOT,
            sequence,
            symbol: traded.symbol,
            time,
            trade_only: false,
            limits: traded.limits(has_trade),
            status: Status(0),
            cumulative_volume: traded.odd_volume,
            trade: has_trade.then_some(Level { price: Price(traded.last), quantity }),
            bids,
            asks,
            lot: std::marker::PhantomData,
        };
        odd_lot.write(buffer).ok()
    }

    /// Describes the instruments of a business in turn, then ends the cycle and restarts.
    fn instrument(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let has_tpex = self.ends[1] > self.ends[0];
        let business = if has_tpex { self.random.below(2) as usize } else { 0 };
        let (stocks, warrants) = self.listed(business);
        let traded = stocks.len() as u32 + warrants.len() as u32;
        let listed = traded.max(CYCLE_MIN);
        let n = self.described[business];
        if n == 0 {
            self.sequences[business][3] = 0;
        }
        let sequence = self.next_sequence(business, 3);
        self.described[business] = if n == listed { 0 } else { n + 1 };
        let is_warrant = n >= stocks.len() as u32 && n < traded;
        let at = if n < stocks.len() as u32 {
            Some(stocks.start + n)
        } else if is_warrant {
            Some(warrants.start + n - stocks.len() as u32)
        } else {
            None
        };
        let traded = at.map(|at| self.traded[at as usize]);
        let (symbol, marker) = match traded {
            Some(traded) => (Some(traded.symbol), Marker::Instrument),
            None if n == listed => (digits(listed, 6), Marker::All),
            None => (digits(900_000 + n, 6), Marker::Instrument),
        };
        let is_tpex = business == 1;
        let instrument = InstrumentRepr {
            business: [Business::Twse, Business::Tpex][business],
            version: 9,
            sequence,
            symbol: symbol?,
            name_big5: *b"SYNTHETIC       ",
            industry: *b"24",
            category: if is_warrant { *b"W1" } else { *b"  " },
            marker,
            anomaly: 0,
            class: is_tpex.then_some(b' '),
            board: Some(b'0'),
            reference: Price(traded.map_or(0, |traded| traded.reference)),
            upper_limit: Price(traded.map_or(0, |traded| traded.upper)),
            lower_limit: Price(traded.map_or(0, |traded| traded.lower)),
            marks: Marks(*b"   A  "),
            match_cycle_s: 0,
            warrant_mark: if is_warrant { b'Y' } else { b' ' },
            warrant: Warrant::default(),
            foreign: (!is_tpex).then_some(b' '),
            trading_unit: 1000,
            currency: *b"   ",
            line: 1,
        };
        instrument.write(buffer).ok()
    }

    /// Indexes of the stocks and warrants of a business.
    fn listed(&self, business: usize) -> (std::ops::Range<u32>, std::ops::Range<u32>) {
        let [a, b, c, d] = self.ends;
        if business == 0 { (0..a, b..c) } else { (a..b, c..d) }
    }
}

impl Traded {
    fn new(n: u32, ends: [u32; 4], random: &mut Random) -> Self {
        let is_warrant = n >= ends[1];
        let symbol = if is_warrant {
            // Codes of warrants have six digits, those of stocks four while enough remain.
            digits(if n < 30_000 { 30_000 + n } else { 700_000 + n }, 6)
        } else if n < 8000 {
            digits(1101 + n, 4)
        } else {
            digits(100_000 + n, 6)
        };
        // Stocks from 10 to 1,010, warrants from 0.5 to 5.5.
        let base = if is_warrant {
            5_000 + random.below(50_000)
        } else {
            100_000 + random.below(10_000_000)
        };
        let reference = base - base % tick(base);
        let upper = reference + reference / 10;
        let lower = reference - reference / 10;
        let upper = upper - upper % tick(upper);
        let lower = lower.next_multiple_of(tick(lower));
        Traded {
            symbol: symbol.unwrap_or(Symbol::ZEROS),
            reference,
            upper,
            lower,
            last: reference,
            volume: 0,
            odd_volume: 0,
            is_open: false,
        }
    }

    /// Moves the price by one tick up, down or not at all, within the limits.
    fn walk(&mut self, bits: u64) {
        match bits & 3 {
            0 => self.last = up(self.last).min(self.upper),
            1 => self.last = down(self.last).max(self.lower),
            _ => {}
        }
    }

    fn limits(&self, has_trade: bool) -> PriceLimits {
        let (trade, bid, ask) = if self.last >= self.upper {
            (0b10, 0b10, 0)
        } else if self.last <= self.lower {
            (0b01, 0, 0b01)
        } else {
            (0, 0, 0)
        };
        PriceLimits(if has_trade { trade << 6 } else { 0 } | bid << 4 | ask << 2)
    }

    /// Bids from the last price down and asks from the tick above it up, within the limits: no asks
    /// at the upper limit, no bids at the lower.
    fn levels(&self, bits: u64, quantity_max: u64) -> (Levels, Levels) {
        let (mut bids, mut asks) = (Levels::default(), Levels::default());
        let quantity = |n: u64| 1 + (bits >> (n % 16)).wrapping_mul(n + 7) % quantity_max;
        let depth = if bits >> 28 & 7 == 0 { 1 + (bits >> 20 & 3) as usize } else { Levels::MAX };
        let is_down = self.last <= self.lower;
        let (mut bid, mut ask) = if is_down { (0, self.last) } else { (self.last, up(self.last)) };
        for n in 0..depth as u64 {
            if bid >= self.lower && !is_down {
                bids.push(Level { price: Price(bid), quantity: quantity(n) });
                bid = down(bid);
            }
            if ask <= self.upper {
                asks.push(Level { price: Price(ask), quantity: quantity(n + 5) });
                ask = up(ask);
            }
        }
        (bids, asks)
    }
}

/// Code of a number with `width` digits.
fn digits(number: u32, width: usize) -> Option<Symbol> {
    let mut bytes = [b' '; 6];
    let mut rest = number;
    for byte in bytes.get_mut(..width)?.iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    Symbol::from_bytes(bytes)
}

/// Smallest change of a price of stocks, both in ten-thousandths.
///
/// Source: TWSE operating rules, article 62.
fn tick(price: u64) -> u64 {
    match price {
        0..100_000 => 100,
        100_000..500_000 => 500,
        500_000..1_000_000 => 1_000,
        1_000_000..5_000_000 => 5_000,
        5_000_000..10_000_000 => 10_000,
        _ => 50_000,
    }
}

fn up(price: u64) -> u64 {
    price + tick(price)
}

fn down(price: u64) -> u64 {
    price.saturating_sub(tick(price.saturating_sub(1)))
}
