//! TWSE and TPEx telegrams.

use market::twse::{
    Body, Book, Business, Instrument, Level, Limit, Lot, Marker, PackedLevels, Price, PriceLimits,
    Status, Telegram,
};
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::{Map, Shown, hex, some, text};

type Done = Result<(), serde_json::Error>;

/// Writes all fields of a telegram.
pub(super) fn telegram(map: &mut Map<'_>, telegram: &Telegram<'_>) -> Done {
    map.serialize_entry("business", &telegram.business().to_wire())?;
    let market = match telegram.business() {
        Business::Twse => Some("TWSE"),
        Business::Tpex => Some("TPEx"),
        Business::Other(_) => None,
    };
    some(map, "market", market)?;
    map.serialize_entry("format", &telegram.format())?;
    map.serialize_entry("version", &telegram.version())?;
    map.serialize_entry("sequence", &telegram.sequence())?;
    match telegram.body() {
        Body::Quote(quote) => book(map, &quote, "round"),
        Body::OddLot(odd_lot) => book(map, &odd_lot, "odd"),
        Body::Instrument(described) => instrument(map, &described),
        Body::Other(body) => map.serialize_entry("body", &hex(body)),
    }
}

fn book<L: Lot>(map: &mut Map<'_>, book: &Book<'_, L>, lot: &str) -> Done {
    map.serialize_entry("symbol", book.symbol().as_str())?;
    map.serialize_entry("match_time", &book.time().map(Shown))?;
    if book.is_end_of_feed() {
        map.serialize_entry("end_of_feed", &true)?;
    }
    map.serialize_entry("lot", lot)?;
    map.serialize_entry("trade", &book.trade().map(LevelEntry))?;
    map.serialize_entry("bids", &Side(book.bids()))?;
    map.serialize_entry("asks", &Side(book.asks()))?;
    map.serialize_entry("trade_only", &book.is_trade_only())?;
    map.serialize_entry("cumulative_volume", &book.cumulative_volume())?;
    map.serialize_entry("limit", &LimitEntry::new(book.limits()))?;
    map.serialize_entry("status", &StatusEntry::new(book.status()))
}

fn instrument(map: &mut Map<'_>, instrument: &Instrument<'_>) -> Done {
    match instrument.marker() {
        Marker::Instrument => {
            map.serialize_entry("symbol", instrument.symbol().as_str())?;
        }
        Marker::All => {
            map.serialize_entry("end_of_cycle", "all")?;
            return map.serialize_entry("instruments", &instrument.count());
        }
        Marker::New => {
            map.serialize_entry("end_of_cycle", "new")?;
            return map.serialize_entry("instruments", &instrument.count());
        }
        Marker::Other(marker) => {
            map.serialize_entry("symbol", instrument.symbol().as_str())?;
            map.serialize_entry("marker", &text(&marker))?;
        }
    }
    let name = instrument.name_big5();
    let (name, _, _) = encoding_rs::BIG5.decode(&name);
    map.serialize_entry("name", name.trim_end_matches([' ', '\u{3000}']))?;
    map.serialize_entry("industry", &text(&instrument.industry()))?;
    map.serialize_entry("category", &text(&instrument.category()))?;
    map.serialize_entry("anomaly", &instrument.anomaly())?;
    some(map, "class", instrument.class().map(char::from))?;
    some(map, "board", instrument.board().map(char::from))?;
    map.serialize_entry("reference", &Shown(instrument.reference()))?;
    map.serialize_entry("limit_up", &Shown(instrument.upper_limit()))?;
    map.serialize_entry("limit_down", &Shown(instrument.lower_limit()))?;
    map.serialize_entry("match_cycle_s", &instrument.match_cycle_s())?;
    map.serialize_entry("trading_unit", &instrument.trading_unit())?;
    map.serialize_entry("currency", &text(&instrument.currency()))?;
    map.serialize_entry("line", &instrument.line())?;
    if instrument.warrant_mark() != b'Y' {
        return Ok(());
    }
    let warrant = instrument.warrant();
    map.serialize_entry(
        "warrant",
        &WarrantEntry {
            strike: Shown(warrant.strike),
            exercised: warrant.exercised,
            cancelled: warrant.cancelled,
            outstanding: warrant.outstanding,
            ratio_hundredths: warrant.ratio_hundredths,
            upper_barrier: Shown(warrant.upper_barrier),
            lower_barrier: Shown(warrant.lower_barrier),
            expiry: warrant.expiry,
        },
    )
}

#[derive(Serialize)]
struct WarrantEntry {
    strike: Shown<Price>,
    exercised: u64,
    cancelled: u64,
    outstanding: u64,
    ratio_hundredths: u32,
    upper_barrier: Shown<Price>,
    lower_barrier: Shown<Price>,
    expiry: u32,
}

struct LevelEntry(Level);

impl Serialize for LevelEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("price", &Shown(self.0.price))?;
        map.serialize_entry("quantity", &self.0.quantity)?;
        map.end()
    }
}

struct Side<'a, L: Lot>(PackedLevels<'a, L>);

impl<L: Lot> Serialize for Side<'_, L> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
        for level in self.0.clone() {
            seq.serialize_element(&LevelEntry(level))?;
        }
        seq.end()
    }
}

#[derive(Serialize)]
struct LimitEntry {
    trade: Option<&'static str>,
    bid: Option<&'static str>,
    ask: Option<&'static str>,
    halt: Option<&'static str>,
}

impl LimitEntry {
    fn new(limits: PriceLimits) -> Self {
        LimitEntry {
            trade: limit_word(limits.trade()),
            bid: limit_word(limits.bid()),
            ask: limit_word(limits.ask()),
            halt: limit_word(limits.halt()),
        }
    }
}

fn limit_word(limit: Limit) -> Option<&'static str> {
    match limit {
        Limit::None => None,
        Limit::Down => Some("down"),
        Limit::Up => Some("up"),
        Limit::Reserved => Some("reserved"),
    }
}

#[derive(Serialize)]
struct StatusEntry {
    trial: bool,
    open_delayed: bool,
    close_delayed: bool,
    continuous: bool,
    open: bool,
    close: bool,
}

impl StatusEntry {
    fn new(status: Status) -> Self {
        StatusEntry {
            trial: status.is_trial(),
            open_delayed: status.is_open_delayed(),
            close_delayed: status.is_close_delayed(),
            continuous: status.is_continuous(),
            open: status.is_open(),
            close: status.is_close(),
        }
    }
}
