//! A listener behind an XDP program of another tool, whose map of sockets is pinned (`--xsk-map`).

use crate::common::pins::{Pins, can_pin};
use crate::common::{LONG, Running, Spaces, all_text, succeed};

#[test]
fn a_listener_uses_the_map_of_an_attached_program() {
    if !can_pin() {
        return;
    }
    let spaces = Spaces::new();
    let pins = Pins::new();
    pins.attach(&spaces.far, "vb");
    let map = pins.at("maps/others");
    let group = "239.77.1.1:10000";
    let listen = ["feed", "listen", group, "-i", "vb", "--from-start", "--json"];
    let listen = [&listen[..], &["--engine", "xdp", "--xsk-map", &map]].concat();
    let mut listener = Running::start(pins.seen_by(&spaces.far(&listen)));
    listener.await_stderr("listening");
    let replay = ["feed", "replay", "--synthetic", "--symbols", "5", "--rate", "2000", "-c", "200"];
    succeed(spaces.near(&[&replay[..], &["--to", group, "-i", "va"]].concat()));
    let told = all_text(&listener.end_by("INT", LONG));
    assert!(
        told.contains("\"datagram_count\":200") || told.contains("\"datagram_count\": 200"),
        "{told}"
    );
    assert!(spaces.far_link().contains("prog/xdp"), "{}", spaces.far_link());
}
