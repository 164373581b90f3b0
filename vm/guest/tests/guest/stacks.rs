//! Images with a protocol stack on the driver, through its adapters.

use wirepath_guest::echo::EchoKind;
use wirepath_guest::ping::{self, Until};
use wirepath_guest::qemu::Boot;

use testkit::skip;

use super::{booted, image};

/// Answers echoes of every size, and more of them than its rings have slots.
fn answers_everything(file: &str) {
    let Some(image) = image() else { return };
    let image = image.with_file_name(file);
    if !image.is_file() {
        return skip("aarch64", format!("{file} is not built; run `cargo xtask firmware`"));
    }
    let (_machine, link, peer) = booted(&Boot::reference(image));
    for bytes in [0, 1, 18, 56, 1471, 1472] {
        for kind in [EchoKind::Icmp, EchoKind::Udp] {
            // More than both rings hold.
            let count = if bytes == 56 { 600 } else { 5 };
            let pinged = ping::run(&link, &peer, kind, bytes, Until::Count(count))
                .unwrap_or_else(|error| panic!("{file}, {bytes} bytes: {error}"));
            assert_eq!(pinged.answered_count, u64::from(count), "{file}, {bytes} bytes");
        }
    }
}

#[test]
fn smoltcp_on_the_driver_answers_echoes() {
    answers_everything("wirepath-guest-smoltcp.elf");
}

#[test]
fn driver_of_embassy_net_answers_echoes() {
    answers_everything("wirepath-guest-embassy.elf");
}
