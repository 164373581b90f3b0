//! Books of a command: in its last document, everything is accounted for.

use serde_json::Value;

/// Last JSON document of an output; null without one.
pub(crate) fn last(stdout: &[u8]) -> Value {
    let docs = serde_json::Deserializer::from_slice(stdout).into_iter::<Value>();
    docs.map_while(Result::ok).last().unwrap_or_default()
}

/// Returns a count of a document.
///
/// # Panics
/// If there is none of that name.
#[track_caller]
pub(crate) fn count(at: &Value, name: &str) -> u64 {
    at[name].as_u64().unwrap_or_else(|| panic!("no {name}: {at:#}"))
}

#[track_caller]
fn sum(at: &Value, names: &[&str]) -> u64 {
    names.iter().map(|name| count(at, name)).sum()
}

/// Asserts that a probe received or lost every datagram, and has every frame; returns the number
/// received.
#[track_caller]
pub(crate) fn probe(doc: &Value) -> u64 {
    let deliveries = doc["deliveries"].as_object().unwrap_or_else(|| panic!("{doc:#}"));
    for delivery in deliveries.values() {
        let all = sum(delivery, &["received_count", "lost_count"]);
        assert_eq!(all, count(delivery, "sent_count"), "{doc:#}");
    }
    let counters = doc["counters"].as_object().expect("counters").iter();
    let mut unbalanced = counters.filter(|(name, _)| name.contains("unbalanced"));
    assert!(unbalanced.all(|(_, count)| count == 0), "{doc:#}");
    deliveries.values().map(|delivery| count(delivery, "received_count")).sum()
}

/// Asserts that a tunnel forwarded or dropped every frame; returns the number sent into tunnels.
#[track_caller]
pub(crate) fn tunnel(doc: &Value) -> u64 {
    for direction in ["into_tunnels", "out_of_tunnels"] {
        let at = &doc[direction];
        let all = sum(at, &["forwarded", "dropped", "undelivered"]);
        assert_eq!(all, count(at, "admitted"), "{doc:#}");
        assert_eq!(sum(at, &["in_flight", "late", "passed"]), 0, "{doc:#}");
    }
    count(&doc["into_tunnels"], "forwarded")
}

/// Asserts that a replay sent or dropped every message; returns the number sent.
#[track_caller]
pub(crate) fn replay(doc: &Value) -> u64 {
    let line = &doc["lines"][0];
    let gone = ["datagram_count", "dropped_datagram_count", "unsent_datagram_count"];
    assert_eq!(sum(line, &gone), count(doc, "datagram_count"), "{doc:#}");
    let union = &doc["union"];
    let all = sum(union, &["carried_count", "lost_count"]);
    assert_eq!(all, count(doc, "message_count"), "{doc:#}");
    count(union, "carried_count")
}

/// Asserts that a listener balances; returns the number of messages delivered or missed. One that heard
/// nothing does not know what it missed.
#[track_caller]
pub(crate) fn listen(doc: &Value) -> u64 {
    assert_eq!(doc["balanced"], true, "{doc:#}");
    match count(doc, "delivered_count") {
        0 if doc["missing_count"].is_null() => 0,
        delivered => delivered + count(doc, "missing_count"),
    }
}

/// Response of `serve` to a request of its first page; empty without one.
///
/// - `stdout`: its output so far, which has its address.
pub(crate) fn first_page(stdout: &str) -> String {
    use std::io::{Read, Write};
    let address = stdout.lines().find_map(|line| line.strip_prefix("http://"));
    let address = address.expect("it serves").trim_end_matches('/');
    let mut answer = Vec::new();
    if let Ok(mut stream) = std::net::TcpStream::connect(address) {
        stream.set_read_timeout(Some(super::LONG)).expect("a time-out");
        let _ = write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let _ = stream.read_to_end(&mut answer);
    }
    String::from_utf8_lossy(&answer).into_owned()
}
