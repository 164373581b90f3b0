//! ITCH 5.0 messages.

use market::itch::{Body, BookSide, Kind, Message, StockDirectory};
use serde::ser::SerializeMap;

use super::{Map, Shown, hex, some, text};

type Done = Result<(), serde_json::Error>;

/// Writes all fields of a message.
pub(super) fn message(map: &mut Map<'_>, message: &Message<'_>) -> Done {
    let kind = message.kind();
    map.serialize_entry("type", &char::from(kind.to_wire()))?;
    map.serialize_entry("name", Kind::name(kind))?;
    map.serialize_entry("locate", &message.locate)?;
    map.serialize_entry("tracking", &message.tracking)?;
    map.serialize_entry("timestamp", &Shown(message.timestamp))?;
    match &message.body {
        Body::SystemEvent(event) => map.serialize_entry("event", &char::from(event.event)),
        Body::StockDirectory(entry) => directory(map, entry),
        Body::AddOrder(add) => {
            map.serialize_entry("reference", &add.reference)?;
            map.serialize_entry("side", side(add.side))?;
            map.serialize_entry("shares", &add.shares)?;
            map.serialize_entry("stock", add.stock.as_str())?;
            map.serialize_entry("price", &Shown(add.price))?;
            some(map, "attribution", add.attribution.as_ref().map(|name| text(name)))
        }
        Body::OrderExecuted(executed) => {
            map.serialize_entry("reference", &executed.reference)?;
            map.serialize_entry("shares", &executed.shares)?;
            map.serialize_entry("match_number", &executed.match_number)?;
            some(map, "printable", executed.at.map(|at| char::from(at.printable)))?;
            some(map, "price", executed.at.map(|at| Shown(at.price)))
        }
        Body::OrderCancel(cancel) => {
            map.serialize_entry("reference", &cancel.reference)?;
            map.serialize_entry("shares", &cancel.shares)
        }
        Body::OrderDelete(delete) => map.serialize_entry("reference", &delete.reference),
        Body::OrderReplace(replace) => {
            map.serialize_entry("original", &replace.original)?;
            map.serialize_entry("new", &replace.new)?;
            map.serialize_entry("shares", &replace.shares)?;
            map.serialize_entry("price", &Shown(replace.price))
        }
        Body::Trade(trade) => {
            map.serialize_entry("reference", &trade.reference)?;
            map.serialize_entry("side", side(trade.side))?;
            map.serialize_entry("shares", &trade.shares)?;
            map.serialize_entry("stock", trade.stock.as_str())?;
            map.serialize_entry("price", &Shown(trade.price))?;
            map.serialize_entry("match_number", &trade.match_number)
        }
        Body::CrossTrade(cross) => {
            map.serialize_entry("shares", &cross.shares)?;
            map.serialize_entry("stock", cross.stock.as_str())?;
            map.serialize_entry("price", &Shown(cross.price))?;
            map.serialize_entry("match_number", &cross.match_number)?;
            map.serialize_entry("cross_type", &char::from(cross.cross_type))
        }
        Body::BrokenTrade(broken) => map.serialize_entry("match_number", &broken.match_number),
        Body::Other { bytes, .. } => map.serialize_entry("body", &hex(bytes)),
    }
}

fn directory(map: &mut Map<'_>, entry: &StockDirectory) -> Done {
    map.serialize_entry("stock", entry.stock.as_str())?;
    map.serialize_entry("market_category", &char::from(entry.market_category))?;
    map.serialize_entry("financial_status", &char::from(entry.financial_status))?;
    map.serialize_entry("round_lot", &entry.round_lot)?;
    map.serialize_entry("round_lots_only", &char::from(entry.round_lots_only))?;
    map.serialize_entry("issue_class", &char::from(entry.issue_class))?;
    map.serialize_entry("issue_sub_type", &text(&entry.issue_sub_type))?;
    map.serialize_entry("authenticity", &char::from(entry.authenticity))?;
    map.serialize_entry("short_sale_threshold", &char::from(entry.short_sale_threshold))?;
    map.serialize_entry("ipo", &char::from(entry.ipo))?;
    map.serialize_entry("luld_tier", &char::from(entry.luld_tier))?;
    map.serialize_entry("etp", &char::from(entry.etp))?;
    map.serialize_entry("etp_leverage", &entry.etp_leverage)?;
    map.serialize_entry("inverse", &char::from(entry.inverse))
}

fn side(side: BookSide) -> &'static str {
    match side {
        BookSide::Buy => "buy",
        BookSide::Sell => "sell",
    }
}
