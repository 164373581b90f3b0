//! The quality of a recorded feed: leads, losses and bursts that were put into a capture.

use std::net::SocketAddrV4;
use std::sync::atomic::AtomicBool;

use wirepath_marketdata::arbiter::ArbiterLimits;
use wirepath_marketdata::books::BooksCapacity;
use wirepath_marketdata::capture::{CapturedInterface, LinkType, Reader, Writer};
use wirepath_marketdata::listen::{ListenReport, RecordedError, RecordedPlan, read};
use wirepath_marketdata::synthetic::{Mix, SyntheticSession, SyntheticSpec, TELEGRAM_BYTES_MAX};

const BEGIN_NS: u64 = 1_790_000_000_000_000_000;
/// Time between telegrams.
const GAP_NS: u64 = 50_000;

fn line(n: u8) -> SocketAddrV4 {
    SocketAddrV4::new([224, 0, n, 100].into(), 10_000)
}

/// A capture of `count` telegrams on two lines: every tenth is missing on A, every fifteenth on B, and A is
/// 20 µs ahead of B, but behind by 7 µs at every fourth.
fn capture(count: u64) -> Vec<u8> {
    let interface = CapturedInterface { name: "none", link: LinkType::RawIp };
    let mut writer = Writer::new(Vec::new(), &interface, "test").expect("a capture");
    let mix = Mix { warrant: 0, odd_lot: 0, instrument: 0, ..Mix::default() };
    let mut session =
        SyntheticSession::new(&SyntheticSpec { symbols: 5, mix, ..SyntheticSpec::new(3) });
    let mut buffer = [0; TELEGRAM_BYTES_MAX];
    for n in 1..=count {
        let len = session.telegram(&mut buffer).expect("it fits");
        let at_ns = BEGIN_NS + n * GAP_NS;
        let b_ns = if n % 4 == 0 { at_ns - 7_000 } else { at_ns + 20_000 };
        let mut both = [(at_ns, line(1), n % 10), (b_ns, line(2), n % 15)];
        both.sort_unstable();
        for (at_ns, to, missing) in both {
            if missing != 0 {
                writer.datagram(at_ns, line(9), to, &buffer[..len]).expect("written");
            }
        }
    }
    writer.into_inner().expect("flushed")
}

fn report_of(capture: &[u8], from: Vec<SocketAddrV4>) -> Result<ListenReport, RecordedError> {
    let mut reader = Reader::new("memory", capture).expect("a capture");
    let plan = RecordedPlan {
        from,
        limits: ArbiterLimits::default(),
        books: BooksCapacity::SNAPSHOTS,
        books_shown: None,
    };
    let mut report = ListenReport::recording(&plan.from);
    let stop = AtomicBool::new(false);
    let recording = read(&mut reader, &plan, &stop, |interval| report.end(interval))?;
    report.set_lines(&recording.lines);
    Ok(report)
}

#[test]
fn leads_losses_and_bursts_are_those_of_the_capture() {
    const COUNT: u64 = 3001;
    let report = report_of(&capture(COUNT), Vec::new()).expect("readable");
    let document = serde_json::to_value(report.summary_document()).expect("JSON");
    assert_eq!(document["command"], "feed report");
    assert_eq!(document["balanced"], true, "{document}");
    let on_a = |n: &u64| !n.is_multiple_of(10);
    let on_b = |n: &u64| !n.is_multiple_of(15);
    let numbers = 1..=COUNT;
    let count = |of: &dyn Fn(&u64) -> bool| numbers.clone().filter(of).count() as u64;
    assert_eq!(document["delivered_count"], count(&|n| on_a(n) || on_b(n)));
    assert_eq!(document["missing_count"], count(&|n| !on_a(n) && !on_b(n)));
    assert_eq!(document["lines"][0]["missing_count"], count(&|n| !on_a(n)));
    assert_eq!(document["lines"][1]["missing_count"], count(&|n| !on_b(n)));
    assert_eq!(document["lines"][1]["group"], line(2).to_string());
    let quality = &document["quality"];
    assert_eq!(quality["pair_count"], count(&|n| on_a(n) && on_b(n)));
    for (at, ahead, ns, densest) in [
        (0, count(&|n| on_a(n) && on_b(n) && n % 4 != 0), 20_000_u64, 2),
        // A datagram that is ahead falls into the window before.
        (1, count(&|n| on_a(n) && on_b(n) && n % 4 == 0), 7_000, 3),
    ] {
        let line = &quality["lines"][at];
        assert_eq!(line["ahead_count"], ahead, "{quality}");
        let median = line["ahead_ns_p50"].as_u64().expect("a time");
        assert!(median.abs_diff(ns) <= ns / 500, "{median} for {ns}");
        // 50 µs apart: two in 100 µs, twenty in 1 ms less the missing.
        assert_eq!(line["burst_100us_count_max"], densest, "{quality}");
        let dense = line["burst_1ms_count_max"].as_u64().expect("a count");
        assert!((18..=20).contains(&dense), "{dense}");
    }
    // A tenth is missing on A: its p90 is the slowest that arrived, the rest is infinitely late.
    let latency = &document["lines"][0]["match_to_app"];
    assert!(latency["p50_ns"].is_u64() && latency["max_ns"].is_null(), "{latency}");
    let page = report.page("Feed", "test").expect("measured");
    let html = report::html::summary_page(&page);
    for text in ["Lead of a line over the other", "∞", "Densest windows", "300 of 3,001 missing"]
    {
        assert!(html.contains(text), "{text} in {html}");
    }
}

#[test]
fn lines_of_a_capture_are_chosen_where_it_has_several() {
    let capture = capture(100);
    let report = report_of(&capture, vec![line(2)]).expect("readable");
    let document = serde_json::to_value(report.summary_document()).expect("JSON");
    assert_eq!(document["lines"].as_array().map(Vec::len), Some(1));
    assert_eq!(document["quality"]["pair_count"], 0);
    let why = report_of(&capture, vec![line(77)]).expect_err("no such line").to_string();
    assert!(why.contains("no UDP datagram to 224.0.77.100:10000"), "{why}");
}

/// Bytes allocated at once while a capture is read.
fn memory_bytes(count: u64) -> u64 {
    let capture = capture(count);
    let used = allocation_counter::measure(|| {
        report_of(&capture, Vec::new()).expect("readable");
    });
    used.bytes_max
}

#[test]
fn memory_does_not_grow_with_the_recording() {
    let (short, long) = (memory_bytes(2_000), memory_bytes(40_000));
    assert!(long <= short + (1 << 20), "{short} and {long} bytes");
    assert!(long < 200 << 20, "{long} bytes");
}
