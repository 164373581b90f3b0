//! Format 01, versions 08 and 09: an instrument, before the market opens and when a new one is
//! added.
//!
//! | offset | field | |
//! |---|---|---|
//! | 10 | 6 characters code | or, with a marker, the number of instruments |
//! | 16 | 16 bytes name | Big5 |
//! | 32 | 2 characters industry | |
//! | 34 | 2 characters category | |
//! | 36 | 2 characters marker | [`Marker`] |
//! | 38 | 2 digits anomaly | |
//! | | u8 class | Taipei Exchange only |
//! | | u8 board | from version 09 |
//! | | 3 × 10 digits | reference, upper limit, lower limit |
//! | | 6 characters marks | [`Marks`] |
//! | | 6 digits match cycle | seconds |
//! | | u8 warrant | then [`Warrant`], 38 bytes |
//! | | u8 foreign | Stock Exchange only |
//! | | 6 digits trading unit | |
//! | | 3 characters currency | spaces: New Taiwan dollars |
//! | | 2 digits line | of the quotes |
//!
//! Each exchange has one of class and foreign, so a telegram of version 09 has 114 bytes for both.

use super::bcd;
use super::error::{EncodeError, TelegramFault};
use super::header::{self, Business, HEADER_BYTES, Header, TRAILER_BYTES};
use super::value::{Symbol, is_printable};
use crate::price::Price;

/// Format of an instrument.
pub const FORMAT_INSTRUMENT: u8 = 1;

/// Offset of the first field that is not at the same place in all.
const CLASS_OFFSET: usize = 39;
/// Bytes from the reference price to the last of the warrant.
const MIDDLE_BYTES: usize = 63;
/// Bytes of trading unit, currency and line.
const TAIL_BYTES: usize = 7;

/// Distinguishes an instrument from the end of a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Marker {
    /// About an instrument.
    Instrument,
    /// `AL`: ends a cycle of all; the code is their number.
    All,
    /// `NE`: ends a cycle of those added today; the code is their number.
    New,
    /// Something else.
    Other([u8; 2]),
}

impl Marker {
    pub(super) const fn from_wire(marker: [u8; 2]) -> Marker {
        match &marker {
            b"  " => Marker::Instrument,
            b"AL" => Marker::All,
            b"NE" => Marker::New,
            _ => Marker::Other(marker),
        }
    }

    const fn to_wire(self) -> [u8; 2] {
        match self {
            Marker::Instrument => *b"  ",
            Marker::All => *b"AL",
            Marker::New => *b"NE",
            Marker::Other(other) => other,
        }
    }
}

/// Six marks of one character, each `Y` or a space except for day trading.
///
/// | index | mark |
/// |---|---|
/// | 0 | the par value is not ten New Taiwan dollars |
/// | 1 | recommended abnormally |
/// | 2 | security of special anomaly |
/// | 3 | day trading: `A` buy or sell first, `B` buy first, space none |
/// | 4 | may be sold on margin below the reference price |
/// | 5 | may be sold borrowed below the reference price |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Marks(pub [u8; 6]);

/// Fields of a warrant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Warrant {
    /// Strike price.
    pub strike: Price,
    /// Exercised on the day before, in thousands.
    pub exercised: u64,
    /// Cancelled on the day before, in thousands.
    pub cancelled: u64,
    /// Outstanding, in thousands.
    pub outstanding: u64,
    /// Shares, or points of the index, for a thousand warrants, in hundredths.
    pub ratio_hundredths: u32,
    /// Upper barrier.
    pub upper_barrier: Price,
    /// Lower barrier.
    pub lower_barrier: Price,
    /// Expiry as the number YYYYMMDD.
    pub expiry: u32,
}

/// An instrument; each accessor decodes its field.
#[derive(Debug, Clone, Copy)]
pub struct Instrument<'a> {
    head: &'a [u8; CLASS_OFFSET],
    class: Option<u8>,
    board: Option<u8>,
    middle: &'a [u8; MIDDLE_BYTES],
    foreign: Option<u8>,
    tail: &'a [u8; TAIL_BYTES],
}

/// Length of the telegram; presence of class, board and foreign mark.
const fn layout(business: Business, version: u8) -> (usize, bool, bool, bool) {
    let class = matches!(business, Business::Tpex);
    let board = version >= 9;
    let optional = 1 + board as usize;
    (CLASS_OFFSET + MIDDLE_BYTES + TAIL_BYTES + TRAILER_BYTES + optional, class, board, !class)
}

/// The layout of a telegram with a header.
fn layout_of(telegram: &[u8]) -> (usize, bool, bool, bool) {
    let number = |at: usize| telegram.get(at).map_or(0, |&byte| bcd::two(byte));
    layout(Business::from_wire(number(3)), number(5))
}

impl<'a> Instrument<'a> {
    /// True if the layout of this version is known.
    #[inline]
    pub(super) const fn knows(version: u8) -> bool {
        matches!(version, 8 | 9)
    }

    /// Checks everything after the header of a telegram with a valid frame.
    ///
    /// Errors: the offset of the faulty field in the telegram, and the fault.
    pub(super) fn check(telegram: &'a [u8]) -> Result<Instrument<'a>, (usize, TelegramFault)> {
        let (expected_bytes, has_class, has_board, has_foreign) = layout_of(telegram);
        let size = TelegramFault::Size { expected_bytes, found_bytes: telegram.len() };
        let instrument = Instrument::view(telegram).ok_or((1, size))?;
        let code = instrument.code();
        if let Some(at) = code.iter().position(|&byte| !is_printable(byte)) {
            return Err((HEADER_BYTES + at, TelegramFault::Symbol { found: code[at] }));
        }
        let middle = CLASS_OFFSET + usize::from(has_class) + usize::from(has_board);
        let tail = middle + MIDDLE_BYTES + usize::from(has_foreign);
        for (field, start, count) in [
            ("anomaly", CLASS_OFFSET - 1, 1),
            ("reference price", middle, 5),
            ("upper limit", middle + 5, 5),
            ("lower limit", middle + 10, 5),
            ("match cycle", middle + 21, 3),
            ("warrant", middle + 25, 38),
            ("trading unit", tail, 3),
            ("line", tail + 6, 1),
        ] {
            let digits = telegram.get(start..start + count).unwrap_or_default();
            if let Some(at) = bcd::first_bad(digits) {
                return Err((start + at, TelegramFault::Digit { field, found: digits[at] }));
            }
        }
        Ok(instrument)
    }

    /// View of a checked telegram; `None` if its length does not match its layout.
    pub(super) fn view(telegram: &'a [u8]) -> Option<Instrument<'a>> {
        let (_, has_class, has_board, has_foreign) = layout_of(telegram);
        let (head, rest) = telegram.split_first_chunk::<CLASS_OFFSET>()?;
        let (class, rest) = split_optional(rest, has_class)?;
        let (board, rest) = split_optional(rest, has_board)?;
        let (middle, rest) = rest.split_first_chunk::<MIDDLE_BYTES>()?;
        let (foreign, rest) = split_optional(rest, has_foreign)?;
        let (tail, trailer) = rest.split_first_chunk::<TAIL_BYTES>()?;
        (trailer.len() == TRAILER_BYTES).then_some(Instrument {
            head,
            class,
            board,
            middle,
            foreign,
            tail,
        })
    }

    /// Market of the telegram.
    pub fn business(&self) -> Business {
        header::business(self.head)
    }

    /// Version of the format, 8 or 9.
    pub fn version(&self) -> u8 {
        header::version(self.head)
    }

    /// Number of the telegram; starts again with every cycle.
    pub fn sequence(&self) -> u32 {
        header::sequence(self.head)
    }

    fn code(&self) -> [u8; 6] {
        self.take(self.head, HEADER_BYTES)
    }

    /// Code of the instrument; with a marker a number, see [`Instrument::count`].
    pub fn symbol(&self) -> Symbol {
        Symbol::from_checked(self.code())
    }

    /// Short name, Big5.
    pub fn name_big5(&self) -> [u8; 16] {
        self.take(self.head, 16)
    }

    /// Industry's code.
    pub fn industry(&self) -> [u8; 2] {
        self.take(self.head, 32)
    }

    /// Category's code; that of a warrant begins with `W`.
    pub fn category(&self) -> [u8; 2] {
        self.take(self.head, 34)
    }

    /// Instrument, or end of a cycle.
    pub fn marker(&self) -> Marker {
        Marker::from_wire(self.take(self.head, 36))
    }

    /// Number of instruments in the cycle that ends here; `None` for an instrument.
    pub fn count(&self) -> Option<u32> {
        matches!(self.marker(), Marker::All | Marker::New)
            .then(|| self.symbol().as_str().trim_start().parse().ok())
            .flatten()
    }

    /// 0 normal, 1 attention, 2 disposition, 3 both, and so on up to 7.
    pub fn anomaly(&self) -> u8 {
        bcd::two(self.head[38])
    }

    /// Class of the stock, a character; Taipei Exchange only.
    pub fn class(&self) -> Option<u8> {
        self.class
    }

    /// Board, a character, `0` the main one; from version 09.
    pub fn board(&self) -> Option<u8> {
        self.board
    }

    /// Reference price of the day.
    pub fn reference(&self) -> Price {
        self.price(0)
    }

    /// Highest price of the day.
    pub fn upper_limit(&self) -> Price {
        self.price(5)
    }

    /// Lowest price of the day.
    pub fn lower_limit(&self) -> Price {
        self.price(10)
    }

    /// Marks of one character each.
    pub fn marks(&self) -> Marks {
        Marks(self.take(self.middle, 15))
    }

    /// Seconds between two call auctions; 0 where matching is continuous.
    pub fn match_cycle_s(&self) -> u32 {
        bcd::number::<3>(&self.take(self.middle, 21)) as u32
    }

    /// `Y` if the fields of [`Instrument::warrant`] are valid, else a space.
    pub fn warrant_mark(&self) -> u8 {
        self.middle[24]
    }

    /// Fields of a warrant; zeros for other instruments.
    pub fn warrant(&self) -> Warrant {
        Warrant {
            strike: self.price(25),
            exercised: self.price(30).0,
            cancelled: self.price(35).0,
            outstanding: self.price(40).0,
            ratio_hundredths: bcd::number::<4>(&self.take(self.middle, 45)) as u32,
            upper_barrier: self.price(49),
            lower_barrier: self.price(54),
            expiry: bcd::number::<4>(&self.take(self.middle, 59)) as u32,
        }
    }

    /// `Y` for a foreign stock; Stock Exchange only.
    pub fn foreign(&self) -> Option<u8> {
        self.foreign
    }

    /// Shares, or units, in a trading unit.
    pub fn trading_unit(&self) -> u32 {
        bcd::number::<3>(&self.take(self.tail, 0)) as u32
    }

    /// Currency's code; spaces are New Taiwan dollars.
    pub fn currency(&self) -> [u8; 3] {
        self.take(self.tail, 3)
    }

    /// Line of its quotes.
    pub fn line(&self) -> u8 {
        bcd::two(self.tail[6])
    }

    fn price(&self, at: usize) -> Price {
        Price(bcd::number::<5>(&self.take(self.middle, at)))
    }

    /// Bytes at an offset that is one of the constants above.
    fn take<const N: usize>(&self, from: &[u8], at: usize) -> [u8; N] {
        from.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }
}

/// Splits off the first byte if `is_there`.
fn split_optional(bytes: &[u8], is_there: bool) -> Option<(Option<u8>, &[u8])> {
    if !is_there {
        return Some((None, bytes));
    }
    bytes.split_first().map(|(&first, rest)| (Some(first), rest))
}

/// An instrument, by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstrumentRepr {
    /// Market of the telegram.
    pub business: Business,
    /// 8 or 9.
    pub version: u8,
    /// Number of the telegram in the cycle, up to [`super::MAX_SEQUENCE`].
    pub sequence: u32,
    /// Code of the instrument, or with a marker the number of instruments.
    pub symbol: Symbol,
    /// Short name, Big5.
    pub name_big5: [u8; 16],
    /// Industry's code.
    pub industry: [u8; 2],
    /// Category's code.
    pub category: [u8; 2],
    /// Instrument, or end of a cycle.
    pub marker: Marker,
    /// 0 normal to 7.
    pub anomaly: u8,
    /// Class, a character; there for the Taipei Exchange.
    pub class: Option<u8>,
    /// Board, a character; there from version 9.
    pub board: Option<u8>,
    /// Reference price of the day.
    pub reference: Price,
    /// Highest price of the day.
    pub upper_limit: Price,
    /// Lowest price of the day.
    pub lower_limit: Price,
    /// Marks of one character each.
    pub marks: Marks,
    /// Seconds between two call auctions; 0 where matching is continuous.
    pub match_cycle_s: u32,
    /// `Y` when the warrant's fields count.
    pub warrant_mark: u8,
    /// Fields of a warrant.
    pub warrant: Warrant,
    /// `Y` for a foreign stock; there for others than the Taipei Exchange.
    pub foreign: Option<u8>,
    /// Shares in a trading unit.
    pub trading_unit: u32,
    /// Currency's code.
    pub currency: [u8; 3],
    /// Line of its quotes.
    pub line: u8,
}

impl InstrumentRepr {
    /// Decodes all fields of the telegram.
    pub fn of(instrument: &Instrument<'_>) -> InstrumentRepr {
        InstrumentRepr {
            business: instrument.business(),
            version: instrument.version(),
            sequence: instrument.sequence(),
            symbol: instrument.symbol(),
            name_big5: instrument.name_big5(),
            industry: instrument.industry(),
            category: instrument.category(),
            marker: instrument.marker(),
            anomaly: instrument.anomaly(),
            class: instrument.class(),
            board: instrument.board(),
            reference: instrument.reference(),
            upper_limit: instrument.upper_limit(),
            lower_limit: instrument.lower_limit(),
            marks: instrument.marks(),
            match_cycle_s: instrument.match_cycle_s(),
            warrant_mark: instrument.warrant_mark(),
            warrant: instrument.warrant(),
            foreign: instrument.foreign(),
            trading_unit: instrument.trading_unit(),
            currency: instrument.currency(),
            line: instrument.line(),
        }
    }

    /// Bytes of the telegram.
    pub fn telegram_bytes(&self) -> usize {
        layout(self.business, self.version).0
    }

    /// Writes the telegram to the start of `buffer` and returns its length.
    ///
    /// Errors: the buffer is too short, a number has more digits than its field, or the
    /// optional fields do not match business and version; the buffer is then unspecified.
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let (telegram_bytes, class, board, foreign) = layout(self.business, self.version);
        let there = [self.class.is_some(), self.board.is_some(), self.foreign.is_some()];
        if !Instrument::knows(self.version) || there != [class, board, foreign] {
            return Err(EncodeError::Contradiction {
                why: "class, board and foreign mark do not match the business and version",
            });
        }
        let header = Header {
            business: self.business,
            format: FORMAT_INSTRUMENT,
            version: self.version,
            sequence: self.sequence,
        };
        header::write(buffer, telegram_bytes, header, |body| self.write_body(body))
    }

    fn write_body(&self, body: &mut [u8]) -> Result<(), EncodeError> {
        let mut to = Cursor(body);
        to.bytes(&self.symbol.to_bytes())?;
        to.bytes(&self.name_big5)?;
        to.bytes(&self.industry)?;
        to.bytes(&self.category)?;
        to.bytes(&self.marker.to_wire())?;
        to.number(self.anomaly.into(), 1, "anomaly")?;
        to.bytes(self.class.as_slice())?;
        to.bytes(self.board.as_slice())?;
        to.number(self.reference.0, 5, "reference price")?;
        to.number(self.upper_limit.0, 5, "upper limit")?;
        to.number(self.lower_limit.0, 5, "lower limit")?;
        to.bytes(&self.marks.0)?;
        to.number(self.match_cycle_s.into(), 3, "match cycle")?;
        to.bytes(&[self.warrant_mark])?;
        let warrant = &self.warrant;
        to.number(warrant.strike.0, 5, "strike price")?;
        to.number(warrant.exercised, 5, "exercised warrants")?;
        to.number(warrant.cancelled, 5, "cancelled warrants")?;
        to.number(warrant.outstanding, 5, "outstanding warrants")?;
        to.number(warrant.ratio_hundredths.into(), 4, "exercise ratio")?;
        to.number(warrant.upper_barrier.0, 5, "upper barrier")?;
        to.number(warrant.lower_barrier.0, 5, "lower barrier")?;
        to.number(warrant.expiry.into(), 4, "expiry")?;
        to.bytes(self.foreign.as_slice())?;
        to.number(self.trading_unit.into(), 3, "trading unit")?;
        to.bytes(&self.currency)?;
        to.number(self.line.into(), 1, "line")
    }
}

/// Bytes that are still to be written.
struct Cursor<'a>(&'a mut [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a mut [u8], EncodeError> {
        let had_bytes = self.0.len();
        let (taken, rest) = core::mem::take(&mut self.0)
            .split_at_mut_checked(count)
            .ok_or(EncodeError::Short { needed_bytes: count, had_bytes })?;
        self.0 = rest;
        Ok(taken)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        self.take(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn number(&mut self, value: u64, count: usize, field: &'static str) -> Result<(), EncodeError> {
        header::put(value, self.take(count)?, field)
    }
}
