//! `wirepath feed listen --late`: causes add up to what was late.

use crate::common::{LONG, Running, Spaces, all_text, fail, json};
use serde_json::Value;

fn sum(causes: &Value) -> u64 {
    let rows = causes.as_array().expect("a list");
    rows.iter().map(|row| row["count"].as_u64().expect("a count")).sum()
}

#[test]
fn every_datagram_over_the_limit_is_explained_or_counted() {
    const GROUP: &str = "239.77.1.1:10000";
    let spaces = Spaces::new();
    let listen = ["feed", "listen", GROUP, "-i", "vb", "--json", "--late", "1ns"];
    let mut listener = Running::start(spaces.far(&listen));
    listener.await_stderr("Ctrl-C ends");
    // It traces the CPUs, which an experiment would count.
    let said = fail(spaces.far(&["prove", "fake", "--time", "1s", "--no-history"]), 1);
    assert!(said.contains("cannot measure while packets are traced"), "{said}");
    // More in a second than can be explained.
    let session = ["--synthetic", "--rate", "4000", "-c", "4000", "--json"];
    let replay = [&["feed", "replay", "--to", GROUP, "-i", "va"], &session[..]].concat();
    json(spaces.near(&replay));
    let output = listener.end_by("INT", LONG);
    assert!(output.status.success(), "{}", all_text(&output));
    let text = String::from_utf8(output.stdout).expect("text");
    let last: Value = serde_json::from_str(text.lines().last().expect("a summary")).expect("JSON");
    let (late, line) = (&last["late"], &last["lines"][0]);
    let stamped =
        line["datagram_count"].as_u64().unwrap() - line["unstamped_count"].as_u64().unwrap();
    assert!(stamped > 0 && late["count"] == stamped, "{last}");
    let beyond = late["beyond_count"].as_u64().unwrap();
    assert_eq!(sum(&late["causes"]) + beyond, stamped, "{late}");
    assert!(sum(&late["causes"]) > 0, "{late}");
}
