//! Order books of recordings, beside those of an independent program (`feed/tests/feed/books.py`).

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use market::itch::{self, Body, Message, OrderCancel, OrderDelete, OrderExecuted, OrderReplace};
use market::mold;
use serde_json::{Value, json as value};
use wirepath_marketdata::arbiter::ArbiterLimits;
use wirepath_marketdata::books::{BooksCapacity, BooksShown};
use wirepath_marketdata::capture::{CapturedInterface, LinkType, Reader, Writer};
use wirepath_marketdata::listen::{ListenReport, RecordedPlan, read};
use wirepath_marketdata::schedule::SendSchedule;
use wirepath_marketdata::synthetic::{MoldSession, MoldSpec, SyntheticSession, SyntheticSpec};

const A: &str = "239.77.1.1:10000";
const B: &str = "239.77.1.2:20000";
const DEPTH: usize = 7;

/// Writes payloads to a pcapng file, each to both lines or to one.
fn record(file: &Path, payloads: &[Vec<u8>], is_lost: impl Fn(usize) -> [bool; 2]) {
    let from: SocketAddrV4 = "192.0.2.9:40000".parse().unwrap();
    let interface = CapturedInterface { name: "lab0", link: LinkType::RawIp };
    let mut writer = Writer::new(Vec::new(), &interface, "test").unwrap();
    for (n, payload) in payloads.iter().enumerate() {
        for (to, lost) in [A, B].into_iter().zip(is_lost(n)) {
            if !lost {
                let stamp_ns = 1_790_000_000_000_000_000 + n as u64 * 10_000;
                writer.datagram(stamp_ns, from, to.parse().unwrap(), payload).unwrap();
            }
        }
    }
    std::fs::write(file, writer.into_inner().unwrap()).unwrap();
}

fn itch_packets(count: usize) -> Vec<Vec<u8>> {
    let spec = MoldSpec { stocks: 40, ..MoldSpec::new(11) };
    let mut session = MoldSession::new(&spec);
    let mut buffer = [0; 1400];
    let mut packets: Vec<Vec<u8>> = (0..count)
        .map(|_| {
            let written = session.datagram(&mut buffer, 20).expect("it fits");
            buffer[..written.bytes].to_vec()
        })
        .collect();
    // Messages that a session of the generator does not have.
    let mut writer =
        mold::PacketWriter::new(&mut buffer, spec.session, session.sent() + 1).unwrap();
    let cross = itch::CrossTrade {
        shares: 5_000_000_000,
        stock: itch::Stock::new("S00001").unwrap(),
        price: itch::Price(1_000_001),
        match_number: 1,
        cross_type: b'O',
    };
    let at = Some(itch::ExecutionPrice { printable: b'N', price: itch::Price(7) });
    for body in [
        Body::CrossTrade(cross),
        Body::OrderExecuted(OrderExecuted { reference: 1, shares: 1, match_number: 2, at }),
        Body::OrderExecuted(OrderExecuted { reference: 1 << 40, shares: 1, match_number: 3, at }),
        Body::OrderCancel(OrderCancel { reference: 1 << 40, shares: 1 }),
        Body::OrderDelete(OrderDelete { reference: 1 << 40 }),
        Body::OrderReplace(OrderReplace {
            original: 1 << 40,
            new: 1,
            shares: 1,
            price: itch::Price(9),
        }),
    ] {
        let message = Message { locate: 1, tracking: 0, timestamp: itch::Timestamp(1), body };
        let mut bytes = [0; itch::MAX_BYTES];
        let len = message.write(&mut bytes).unwrap();
        writer.push(&bytes[..len]).unwrap();
    }
    let len = writer.finish();
    packets.push(buffer[..len].to_vec());
    packets
}

fn telegrams(count: usize) -> Vec<Vec<u8>> {
    let mut session = SyntheticSession::new(&SyntheticSpec {
        symbols: 60,
        schedule: SendSchedule::paced(100_000),
        ..SyntheticSpec::new(3)
    });
    let mut buffer = [0; 1400];
    (0..count)
        .map(|_| {
            let written = session.datagram(&mut buffer, 5).expect("it fits");
            buffer[..written.bytes].to_vec()
        })
        .collect()
}

/// Books of a summary, in the form of `books.py`.
fn in_its_form(document: &Value) -> Value {
    let books = &document["books"];
    let shown = books["shown"].as_array().unwrap_or_else(|| panic!("{document}"));
    let named: BTreeMap<String, Value> = shown
        .iter()
        .map(|book| {
            let last = match book["lot"].as_str() {
                Some(lot) => lot.to_owned(),
                None => book["locate"].to_string(),
            };
            let text = |name: &str| book[name].as_str().unwrap().to_owned();
            let traded = &book["last"];
            let state = value!({
                "digest": book["digest"],
                "levels": [book["bid_level_count"], book["ask_level_count"]],
                "bids": levels(&book["bids"]),
                "asks": levels(&book["asks"]),
                "messages": book["message_count"],
                "trades": book["trade_count"],
                "last": if traded.is_null() { Value::Null } else { value!([traded["price"], traded["quantity"]]) },
                "volume": book["cumulative_volume"],
            });
            (format!("{} {} {last}", text("market"), text("symbol")), state)
        })
        .collect();
    let count = |name: &str| books[name].as_u64().unwrap_or(0);
    value!({
        "digest": books["digest"],
        "live": count("live_order_count"),
        "unknown": count("unknown_order_count"),
        "contradictory": count("contradictory_count"),
        "books": named,
    })
}

/// Levels of one side of a book.
fn levels(side: &Value) -> Vec<Value> {
    let levels = side.as_array().unwrap().iter();
    levels
        .map(|of| value!([of["price"], of["quantity"], of["order_count"].as_u64().unwrap_or(0)]))
        .collect()
}

/// Books of a recording by the independent program.
fn by_python(file: &Path) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/feed/books.py");
    let mut python = Command::new("python3");
    let output = python.arg(script).arg(file).arg(DEPTH.to_string()).output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Books of a recording: its summary, as document and as text, and its notes.
fn by_report(file: &Path, shown: usize, books: BooksCapacity) -> (Value, String, Vec<String>) {
    let mut reader = Reader::open(file).expect("a capture");
    let books_shown = Some(BooksShown { count: shown, depth: DEPTH });
    let limits = ArbiterLimits::default();
    let plan = RecordedPlan { from: Vec::new(), limits, books, books_shown };
    let (mut report, mut notes) = (ListenReport::recording(&[]), Vec::new());
    let stop = AtomicBool::new(false);
    let recording = read(&mut reader, &plan, &stop, |interval| {
        notes.extend(interval.notes.iter().cloned());
        report.end(interval);
    });
    report.set_lines(&recording.expect("readable").lines);
    let document = serde_json::to_value(report.summary_document()).expect("JSON");
    assert_eq!(document["balanced"], true, "{document}");
    (document, report.summary_text(), notes)
}

const CAPACITY: BooksCapacity =
    BooksCapacity { orders_max: Some(BooksCapacity::ORDERS_MAX), ..BooksCapacity::SNAPSHOTS };

#[test]
fn books_of_a_recording_are_those_of_an_independent_program() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("feed.pcapng");
    for all in [itch_packets(600), telegrams(1500)] {
        // Joined late, the whole, and the first half: packets are lost on either line, and one in 70 on both.
        for part in [&all[200..], &all[..], &all[..all.len() / 2]] {
            record(&file, part, |n| [n % 7 == 3, n % 10 == 3]);
            let (document, ..) = by_report(&file, 100_000, CAPACITY);
            let theirs = by_python(&file);
            assert_eq!(in_its_form(&document), theirs);
            let books = theirs["books"].as_object().expect("books");
            assert!(books.len() >= 40, "{}", books.len());
            assert!(books.values().any(|book| book["levels"][0].as_u64() > Some(4)));
            assert!(books.values().any(|book| !book["last"].is_null()));
        }
    }
}

#[test]
fn a_summary_without_the_beginning_names_the_orders_that_are_not_known() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("feed.pcapng");
    record(&file, &itch_packets(600)[200..], |_| [false, true]);
    let (document, text, _) = by_report(&file, 2, CAPACITY);
    assert!(document["books"]["unknown_order_count"].as_u64() > Some(100), "{document}");
    assert!(text.contains("messages were about orders that were added before"), "{text}");
    let table: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("book ")).collect();
    assert!(table.len() > 3 && table.iter().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn books_and_orders_beyond_the_capacity_are_noted_once() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("feed.pcapng");
    record(&file, &itch_packets(600), |_| [false, true]);
    let capacity = BooksCapacity { books_max: 10, orders_max: Some(50) };
    let (document, _, notes) = by_report(&file, 1, capacity);
    for option in ["--symbols", "--orders"] {
        let count = notes.iter().filter(|note| note.contains(option)).count();
        assert_eq!(count, 1, "{option}: {notes:?}");
    }
    assert_eq!(document["book_count"], 10);
    assert!(document["book_refused_count"].as_u64() > Some(100), "{document}");
    let books = &document["books"];
    assert!(books["refused_order_count"].as_u64() > Some(10), "{document}");
    assert!(books["live_order_count"].as_u64() <= Some(50), "{document}");
    assert_eq!(books["shown"].as_array().map(Vec::len), Some(1));
}
