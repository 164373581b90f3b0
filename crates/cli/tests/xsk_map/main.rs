//! AF_XDP behind an XDP program of another tool, whose map of sockets is pinned (`--xsk-map`).

#[path = "../common/mod.rs"]
mod common;

use common::pins::{Pins, can_pin, source};
use common::{FAR_IP, LONG, Running, Spaces, all_text, fail, json, run};

fn ping(spaces: &Spaces) {
    let ping = ["probe", "ping", FAR_IP, "--no-peer", "-c", "50", "--json"];
    let document = json(spaces.near(&ping));
    assert_eq!(document["deliveries"]["round-trip"]["received_count"], 50, "{document:#}");
}

#[test]
fn an_attached_program_is_used_and_its_map_is_empty_after_every_end() {
    if !can_pin() {
        return;
    }
    let spaces = Spaces::new();
    let pins = Pins::new();
    pins.attach(&spaces.far, "vb");
    let map = pins.at("maps/others");
    let echo = ["probe", "echo", "--arm", "bypass", "-i", "vb"];

    let told = fail(pins.seen_by(&spaces.far(&echo)), 1);
    for part in ["already has an XDP program `other` (id ", "map pin id ", "--xsk-map"] {
        assert!(told.contains(part), "{told}");
    }

    let through = [&echo[..], &["--xsk-map", &map, "--json"]].concat();
    let start = || {
        let mut running = Running::start(pins.seen_by(&spaces.far(&through)));
        running.await_stderr("listening on ");
        running
    };
    for signal in ["INT", "TERM", "KILL"] {
        let running = start();
        ping(&spaces);
        let ended = running.end_by(signal, LONG);
        if signal == "KILL" {
            continue;
        }
        let text = all_text(&ended);
        assert!(text.contains("by other (id "), "{text}");
        assert!(text.contains("\"near_xdp_bypassed_count\": 0"), "{text}");
    }
    // Nothing was left in the map: each start took the same entry. The program is as it was.
    let running = start();
    ping(&spaces);
    drop(running);
    assert!(spaces.far_link().contains("prog/xdp"), "{}", spaces.far_link());
}

#[test]
fn a_map_that_cannot_be_used_is_refused_with_the_reason() {
    if !can_pin() {
        return;
    }
    let spaces = Spaces::with_queues(3);
    let pins = Pins::new();
    let hash = pins.at("hash");
    let make = ["map", "create", &hash, "type", "hash", "key", "4", "value", "4", "entries", "1"];
    pins.bpftool(&[&make[..], &["name", "h"]].concat());
    let map = pins.at("maps/others");
    let refused = |path: &str, more: &[&str]| {
        let echo = ["probe", "echo", "--arm", "bypass", "-i", "vb", "--xsk-map", path];
        fail(pins.seen_by(&spaces.far(&[&echo[..], more].concat())), 1)
    };
    let none = refused(&map, &[]);
    assert!(none.contains("vb") && none.contains("has no XDP program"), "{none}");
    pins.attach(&spaces.far, "vb");
    let cases = [
        (pins.at("prog"), "is not a map: a program or a link is pinned there"),
        (hash, "is a map of type Hash, not an XSKMAP"),
        (source().into(), "cannot be opened as a pinned map"),
        (pins.at("nothing"), "cannot be opened"),
        (pins.at("maps"), "is not a pinned map"),
    ];
    for (path, why) in cases {
        let told = refused(&path, &[]);
        assert!(told.contains(&path) && told.contains(why), "{told}");
    }
    let told = refused(&map, &["-q", "2"]);
    assert!(told.contains("has 2 entries, none for queue 2"), "{told}");

    // A socket of another interface has the entry.
    pins.attach(&spaces.near, "va");
    let holder = ["probe", "echo", "--arm", "bypass", "-i", "va", "--xsk-map", &map, "-q", "1"];
    let mut holder = Running::start(pins.seen_by(&spaces.near(&holder)));
    holder.await_stderr("listening on ");
    let told = refused(&map, &["-q", "1"]);
    assert!(told.contains("has a socket of another process for queue 1"), "{told}");
    drop(holder);

    for args in [&["--xsk-map", "/x"][..], &["--arm", "bypass+native", "--xsk-map", "/x"]] {
        let output = run(spaces.far(&[&["probe", "echo", "-i", "vb"], args].concat()));
        assert_eq!(output.status.code(), Some(2), "{}", all_text(&output));
    }
}
