//! Order books of recordings and of lossy lines, beside those of an independent program (`books.py`).

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::process::Command;

use crate::common::{Data, LONG, NEAR_IP, Running, Spaces, all_text, json, run, wirepath};
use market::itch::{self, Body, Message, OrderCancel, OrderDelete, OrderExecuted, OrderReplace};
use market::mold;
use marketdata::capture::{CapturedInterface, LinkType, Writer};
use marketdata::schedule::SendSchedule;
use marketdata::synthetic::{MoldSession, MoldSpec, SyntheticSession, SyntheticSpec};
use serde_json::{Value, json as value};

const A: &str = "239.77.1.1:10000";
const B: &str = "239.77.1.2:20000";
const DEPTH: &str = "7";

/// Writes payloads to a pcapng file, each to both lines or to one.
fn record(file: &str, payloads: &[Vec<u8>], is_lost: impl Fn(usize) -> [bool; 2]) {
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
    let level = |level: &Value| {
        value!([level["price"], level["quantity"], level["order_count"].as_u64().unwrap_or(0)])
    };
    let side = |side: &Value| side.as_array().unwrap().iter().map(level).collect::<Vec<_>>();
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
                "bids": side(&book["bids"]),
                "asks": side(&book["asks"]),
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

/// Books of a recording by the independent program.
fn by_python(file: &str) -> Value {
    let mut python = Command::new("python3");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../feed/tests/feed/books.py"));
    python.args([file, DEPTH]);
    json(python)
}

fn by_report(file: &str) -> Value {
    json(wirepath(&["feed", "report", file, "--books", "100000", "--depth", DEPTH, "--json"]))
}

#[test]
fn books_of_a_recording_are_those_of_an_independent_program() {
    let data = Data::new();
    let file = data.file("feed.pcapng");
    for all in [itch_packets(600), telegrams(1500)] {
        // Joined late, the whole, and the first half: packets are lost on either line, and one in 70 on both.
        let parts = [&all[200..], &all[..], &all[..all.len() / 2]];
        for part in parts {
            record(&file, part, |n| [n % 7 == 3, n % 10 == 4]);
            let (ours, theirs) = (in_its_form(&by_report(&file)), by_python(&file));
            assert_eq!(ours, theirs);
            let books = theirs["books"].as_object().expect("books");
            assert!(books.len() >= 40, "{}", books.len());
            let is_deep = |book: &Value| book["levels"][0].as_u64() > Some(4);
            assert!(
                books.values().any(is_deep) && books.values().any(|book| !book["last"].is_null())
            );
        }
    }
    // Without the beginning, orders are unknown; the summary says so.
    record(&file, &itch_packets(600)[200..], |_| [false; 2]);
    let text = crate::common::succeed(wirepath(&["feed", "report", &file, "--books", "2"]));
    assert!(text.contains("messages were about orders that were added before"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80 || !line.starts_with("S0")),
        "{text}"
    );
}

#[test]
fn a_receiver_of_lossy_lines_has_the_books_of_what_was_sent() {
    let (spaces, data) = (Spaces::new(), Data::new());
    let file = data.file("sent.pcapng");
    // Those of the generator.
    record(&file, &itch_packets(60)[..60], |_| [false, true]);
    let theirs = by_python(&file);
    let server = format!("{NEAR_IP}:18000");
    // Each line loses a tenth; what both lose is requested.
    let session = ["feed", "replay", "--synthetic", "--mold", "--seed", "11", "--symbols", "40"];
    let pace = ["--rate", "4000", "-c", "60", "--per-datagram", "20", "--serve", &server, "--json"];
    let lines = ["--to", A, "--to-b", B, "-i", "va", "--drop-a", "10%", "--drop-b", "10%"];
    let groups = ["feed", "listen", A, "--group-b", B, "-i", "vb", "--json", "--from-start"];
    let books = ["--books", "1000", "--depth", DEPTH, "--mold", "--recover", &server];
    let limits = ["--hold", "60s", "-c", "1200"];
    let mut listener = Running::start(spaces.far(&[&groups[..], &books, &limits].concat()));
    listener.await_stderr("Ctrl-C ends");
    let replay = Running::start(spaces.near(&[&session[..], &pace, &lines].concat()));
    let output = listener.finish(LONG).expect("it ends");
    assert!(output.status.success(), "{}", all_text(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let got: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
    let sent = replay.end_by("INT", LONG);
    assert!(sent.status.success(), "{}", all_text(&sent));
    assert!(got["recovery"]["recovered_count"].as_u64() > Some(0), "{got}");
    assert_eq!(in_its_form(&got), theirs);
    assert!(got["books"]["live_order_count"].as_u64() > Some(200), "{got}");
}

#[test]
fn books_and_orders_beyond_the_capacity_are_noted_once() {
    let data = Data::new();
    let file = data.file("feed.pcapng");
    record(&file, &itch_packets(600), |_| [false; 2]);
    let limits = ["--books", "1", "--symbols", "10", "--orders", "50"];
    let output = run(wirepath(&[&["feed", "report", &file, "--json"], &limits[..]].concat()));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("raise --symbols").count(), 1, "{said}");
    assert_eq!(said.matches("raise --orders").count(), 1, "{said}");
    let got: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(got["book_count"], 10);
    assert!(got["book_refused_count"].as_u64() > Some(100), "{got}");
    assert!(got["books"]["refused_order_count"].as_u64() > Some(10), "{got}");
    assert!(got["books"]["live_order_count"].as_u64() <= Some(50), "{got}");
    assert_eq!(got["books"]["shown"].as_array().map(Vec::len), Some(1));
}
