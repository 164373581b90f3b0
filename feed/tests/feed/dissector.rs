//! The printed Wireshark dissector and `feed decode` read the same fields out of the same telegrams.
//!
//! `WIREPATH_TEST_TELEGRAMS` sets their number for each format.

use std::fs::File;
use std::net::SocketAddrV4;
use std::process::Command;
use std::time::Duration;

use crate::common::{Data, LONG, is_installed, succeed, succeed_within, wirepath};
use market::twse::{Business, OtherRepr};
use marketdata::capture::{CapturedInterface, LinkType, Writer};
use marketdata::synthetic::{Mix, SyntheticSession, SyntheticSpec, TELEGRAM_BYTES_MAX};
use serde_json::Value;

const TELEGRAMS: usize = 300;
/// Fields of tshark without `twse.`, and their places in the object of `feed decode`.
const FIELDS: [(&str, &str); 50] = [
    ("business", "/business"),
    ("market", "/market"),
    ("format", "/format"),
    ("version", "/version"),
    ("sequence", "/sequence"),
    ("symbol", "/symbol"),
    ("match_time", "/match_time"),
    ("end_of_feed", "/end_of_feed"),
    ("lot", "/lot"),
    ("trade.price", "/trade/price"),
    ("trade.quantity", "/trade/quantity"),
    ("bid.price", "/bids/price"),
    ("bid.quantity", "/bids/quantity"),
    ("ask.price", "/asks/price"),
    ("ask.quantity", "/asks/quantity"),
    ("trade_only", "/trade_only"),
    ("cumulative_volume", "/cumulative_volume"),
    ("limit.trade", "/limit/trade"),
    ("limit.bid", "/limit/bid"),
    ("limit.ask", "/limit/ask"),
    ("limit.halt", "/limit/halt"),
    ("status.trial", "/status/trial"),
    ("status.open_delayed", "/status/open_delayed"),
    ("status.close_delayed", "/status/close_delayed"),
    ("status.continuous", "/status/continuous"),
    ("status.open", "/status/open"),
    ("status.close", "/status/close"),
    ("instruments", "/instruments"),
    ("name", "/name"),
    ("industry", "/industry"),
    ("category", "/category"),
    ("anomaly", "/anomaly"),
    ("class", "/class"),
    ("board", "/board"),
    ("reference", "/reference"),
    ("limit_up", "/limit_up"),
    ("limit_down", "/limit_down"),
    ("match_cycle_s", "/match_cycle_s"),
    ("trading_unit", "/trading_unit"),
    ("currency", "/currency"),
    ("line", "/line"),
    ("warrant.strike", "/warrant/strike"),
    ("warrant.exercised", "/warrant/exercised"),
    ("warrant.cancelled", "/warrant/cancelled"),
    ("warrant.outstanding", "/warrant/outstanding"),
    ("warrant.ratio_hundredths", "/warrant/ratio_hundredths"),
    ("warrant.upper_barrier", "/warrant/upper_barrier"),
    ("warrant.lower_barrier", "/warrant/lower_barrier"),
    ("warrant.expiry", "/warrant/expiry"),
    ("body", "/body"),
];

/// Writes a telegram a packet, of all formats; returns their number.
fn write_capture(file: &str, each: usize) -> usize {
    let output = File::create(file).expect("a file");
    let interface = CapturedInterface { name: "none", link: LinkType::RawIp };
    let mut writer = Writer::new(output, &interface, "test").expect("a capture");
    let from: SocketAddrV4 = "192.0.2.9:40000".parse().expect("an address");
    let to: SocketAddrV4 = "224.0.100.100:10000".parse().expect("an address");
    let mut stamp_ns = 1_790_000_000_000_000_000;
    let mut write = |telegram: &[u8]| {
        stamp_ns += 1000;
        writer.datagram(stamp_ns, from, to, telegram).expect("written");
    };
    let mix = Mix { quote: 1, warrant: 1, odd_lot: 1, instrument: 1 };
    let mut session =
        SyntheticSession::new(&SyntheticSpec { symbols: 40, mix, ..SyntheticSpec::new(11) });
    let mut buffer = [0; TELEGRAM_BYTES_MAX];
    for _ in 0..4 * each {
        let bytes = session.telegram(&mut buffer).expect("it fits");
        write(&buffer[..bytes]);
    }
    let other = OtherRepr {
        business: Business::Twse,
        format: 20,
        version: 1,
        sequence: 77,
        body: &[0x1b, 0, 0xff],
    };
    let bytes = other.write(&mut buffer).expect("it fits");
    write(&buffer[..bytes]);
    writer.flush().expect("flushed");
    4 * each + 1
}

/// Text of a value as tshark prints it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(is) => if *is { "1" } else { "0" }.into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn expected(object: &Value, name: &str, place: &str) -> String {
    let sides = ["/bids/", "/asks/"];
    if let Some(side) = sides.iter().find(|side| place.starts_with(**side)) {
        let levels = object[side.trim_matches('/')].as_array().cloned().unwrap_or_default();
        let field = &place[side.len()..];
        return levels.iter().map(|level| text(&level[field])).collect::<Vec<_>>().join("|");
    }
    let value = object.pointer(place).unwrap_or(&Value::Null);
    // The dissector names the absence of a limit, so that a filter can ask for it.
    if name.starts_with("limit.") && value.is_null() && object["limit"].is_object() {
        return "none".into();
    }
    text(value)
}

/// Without padding and colons. tshark 4.2 prints `True` where 4.0 prints `1`.
fn plain(text: &str) -> String {
    match text {
        "True" => "1".into(),
        "False" => "0".into(),
        text => text.trim_end_matches([' ', '\u{3000}']).replace(':', ""),
    }
}

#[test]
fn tshark_and_decode_agree_on_every_field() {
    if !is_installed("tshark") {
        return;
    }
    let data = Data::new();
    let (file, script) = (data.file("all.pcapng"), data.file("twse.lua"));
    let each = std::env::var("WIREPATH_TEST_TELEGRAMS").map_or(Ok(TELEGRAMS), |text| text.parse());
    let each = each.expect("a number");
    let count = write_capture(&file, each);
    std::fs::write(&script, succeed(wirepath(&["feed", "dissector"]))).expect("written");
    let decoded = succeed(wirepath(&["feed", "decode", &file]));
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", &file, "-X", &format!("lua_script:{script}"), "-T", "fields"]);
    tshark.args(["-E", "separator=/t", "-E", "aggregator=|", "-e", "twse.checksum.right"]);
    for (name, _) in FIELDS {
        tshark.args(["-e", &format!("twse.{name}")]);
    }
    let limit = LONG + Duration::from_millis(4 * each as u64);
    let dissected = succeed_within(limit, tshark);
    let (mut rows, mut formats) = (0, std::collections::BTreeMap::new());
    for (row, line) in dissected.lines().zip(decoded.lines()) {
        let object: Value = serde_json::from_str(line).expect("JSON");
        let mut columns = row.split('\t');
        assert_eq!(columns.next().map(plain).as_deref(), Some("1"), "checksum of {line}");
        for ((name, place), column) in FIELDS.iter().zip(columns) {
            let expected = plain(&expected(&object, name, place));
            assert_eq!(plain(column), expected, "{name} of {line}");
        }
        rows += 1;
        *formats.entry(object["format"].to_string()).or_insert(0) += 1;
    }
    assert_eq!((rows, dissected.lines().count(), decoded.lines().count()), (count, count, count));
    assert_eq!(formats.keys().collect::<Vec<_>>(), ["1", "17", "20", "23", "6"]);
}
