//! Configurations of strangers: their text does not drive the terminal, and their size does not fill the memory.

use crate::common::Data;
use crate::common::contained::{WrongSizes, assert_file_is_contained};

#[test]
fn no_text_of_a_configuration_drives_the_terminal_or_becomes_a_line_of_its_own() {
    let tunnel = serde_json::json!({
        "engine": "packet",
        "port": { "interface": "tap7" },
        "underlay": { "interface": "eth0", "address": "192.0.2.1" },
        "tunnel": [{ "name": "site", "carrier": "vxlan", "remote": "192.0.2.2", "vni": 7, "next_hop": "02:00:00:00:00:01" }],
        "static": [{ "mac": "02:00:00:00:00:02", "tunnel": "site" }],
    });
    let check = vec!["tunnel", "run", "FILE", "--check"];
    assert_file_is_contained("tunnel", &tunnel, &[check]);
}

#[test]
fn a_configuration_of_a_wrong_size_is_refused_before_it_is_read() {
    let data = Data::new();
    let files = WrongSizes::new(&data);
    for file in [&files.huge, &files.zeros] {
        files.assert_refused(&data, &["tunnel", "run", "--check", file]);
    }
}
