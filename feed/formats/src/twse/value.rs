//! The values in telegrams: codes, times, levels, flags.

use core::fmt;
use core::ops::Deref;

use crate::price::Price;

/// An instrument's code: six printable ASCII characters, padded with spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol([u8; 6]);

impl Symbol {
    /// Code in the end-of-feed marker.
    pub const ZEROS: Symbol = Symbol(*b"000000");

    /// Code of one to six characters; `None` if empty, longer or not printable ASCII.
    pub const fn new(code: &str) -> Option<Symbol> {
        let code = code.as_bytes();
        let mut bytes = [b' '; 6];
        if code.is_empty() || code.len() > bytes.len() {
            return None;
        }
        let mut at = 0;
        while at < code.len() {
            bytes[at] = code[at];
            at += 1;
        }
        Symbol::from_bytes(bytes)
    }

    /// Parses a code from the bytes of a telegram; `None` if they are not printable ASCII.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 6]) -> Option<Symbol> {
        let mut at = 0;
        let mut printable = true;
        while at < bytes.len() {
            printable &= is_printable(bytes[at]);
            at += 1;
        }
        if printable { Some(Symbol(bytes)) } else { None }
    }

    /// Symbol of checked bytes.
    #[inline]
    pub(super) const fn from_checked(bytes: [u8; 6]) -> Symbol {
        Symbol(bytes)
    }

    /// All six characters.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 6] {
        self.0
    }

    /// The characters as one number below 2^48: cheap to hash and to compare, in the same order
    /// as the text.
    #[inline]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The code without its trailing spaces.
    pub fn as_str(&self) -> &str {
        // The characters were checked, so the default is never used.
        core::str::from_utf8(&self.0).unwrap_or_default().trim_end_matches(' ')
    }
}

/// True if a byte may be part of a code.
#[inline]
pub(super) const fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Time of day in microseconds since midnight, Taipei time.
///
/// Prints as `HH:MM:SS.ffffff`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchTime(u64);

impl MatchTime {
    /// Microseconds in a day.
    pub const DAY_MICROS: u64 = 86_400_000_000;

    /// Time of `micros`; `None` if past the end of the day.
    #[inline]
    pub const fn from_micros(micros: u64) -> Option<MatchTime> {
        if micros < MatchTime::DAY_MICROS { Some(MatchTime(micros)) } else { None }
    }

    /// Time of checked digits.
    #[inline]
    pub(super) const fn from_checked(micros: u64) -> MatchTime {
        MatchTime(micros)
    }

    /// Microseconds since midnight.
    #[inline]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Hours, minutes, seconds and microseconds.
    #[inline]
    pub(super) const fn parts(self) -> (u64, u64, u64, u64) {
        let seconds = self.0 / 1_000_000;
        (seconds / 3600, seconds / 60 % 60, seconds % 60, self.0 % 1_000_000)
    }
}

impl fmt::Display for MatchTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds, micros) = self.parts();
        write!(f, "{hours:02}:{minutes:02}:{seconds:02}.{micros:06}")
    }
}

/// A price and the quantity bid, asked or traded at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Level {
    /// The price; 0 in a best level means market orders.
    pub price: Price,
    /// Trading units; in an odd lot shares.
    pub quantity: u64,
}

/// Up to five levels of one side, the best first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Levels {
    levels: [Level; Levels::MAX],
    count: u8,
}

impl Levels {
    /// Most levels that a side has.
    pub const MAX: usize = 5;

    /// `None` if there are more than [`Levels::MAX`].
    pub fn new(levels: &[Level]) -> Option<Levels> {
        let mut all = Levels::default();
        all.levels.get_mut(..levels.len())?.copy_from_slice(levels);
        all.count = levels.len() as u8;
        Some(all)
    }

    /// The first five of these levels.
    #[inline]
    pub(super) fn first_of(levels: impl ExactSizeIterator<Item = Level>) -> Levels {
        let mut all = Levels { count: levels.len().min(Levels::MAX) as u8, ..Levels::default() };
        all.levels.iter_mut().zip(levels).for_each(|(place, level)| *place = level);
        all
    }

    /// Appends a level; returns `false` if there are five already.
    #[inline]
    pub fn push(&mut self, level: Level) -> bool {
        let Some(free) = self.levels.get_mut(usize::from(self.count)) else { return false };
        *free = level;
        self.count += 1;
        true
    }
}

impl Deref for Levels {
    type Target = [Level];

    #[inline]
    fn deref(&self) -> &[Level] {
        self.levels.get(..usize::from(self.count)).unwrap_or_default()
    }
}

impl PartialEq for Levels {
    fn eq(&self, other: &Levels) -> bool {
        **self == **other
    }
}

impl Eq for Levels {}

/// Position of a price relative to the day's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Between the limits.
    None,
    /// At the lower limit.
    Down,
    /// At the upper limit.
    Up,
    /// A reserved value.
    Reserved,
}

impl Limit {
    const fn from_bits(bits: u8) -> Limit {
        match bits & 3 {
            0 => Limit::None,
            1 => Limit::Down,
            2 => Limit::Up,
            _ => Limit::Reserved,
        }
    }
}

/// The byte of limits and of the halt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PriceLimits(pub u8);

impl PriceLimits {
    /// The trade.
    #[inline]
    pub const fn trade(self) -> Limit {
        Limit::from_bits(self.0 >> 6)
    }

    /// The best bid.
    #[inline]
    pub const fn bid(self) -> Limit {
        Limit::from_bits(self.0 >> 4)
    }

    /// The best ask.
    #[inline]
    pub const fn ask(self) -> Limit {
        Limit::from_bits(self.0 >> 2)
    }

    /// Matching is halted because the price was about to fall or to rise too fast.
    #[inline]
    pub const fn halt(self) -> Limit {
        Limit::from_bits(self.0)
    }

    /// True if matching is halted.
    #[inline]
    pub const fn is_halted(self) -> bool {
        self.0 & 3 != 0
    }
}

/// The byte of the state of trading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u8);

impl Status {
    /// The prices are a trial, nothing was matched.
    #[inline]
    pub const fn is_trial(self) -> bool {
        self.0 & 0x80 != 0
    }

    /// The opening is delayed; says nothing outside a trial.
    #[inline]
    pub const fn is_open_delayed(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// The close is delayed; says nothing outside a trial.
    #[inline]
    pub const fn is_close_delayed(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// Matched order by order rather than by call auction.
    #[inline]
    pub const fn is_continuous(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// The opening.
    #[inline]
    pub const fn is_open(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// The close.
    #[inline]
    pub const fn is_close(self) -> bool {
        self.0 & 0x04 != 0
    }
}
