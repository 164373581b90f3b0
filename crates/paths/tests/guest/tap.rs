//! Programs that everybody has, against the firmware through a TAP interface.

use std::process::Command;
use std::time::Duration;

use host::child::{Child, Finished, Place};
use wirepath_paths::guest::qemu::{Boot, TAP_IFNAME};
use wirepath_paths::guest::tap::TapMachine;

use super::{ALL, ALL_AND_BEYOND, has, image, skipped};

fn on_tap(switches: &str) -> Option<TapMachine> {
    let image = image()?;
    if let Err(error) = host::lab::TapHome::new() {
        skipped(error);
        return None;
    }
    Some(TapMachine::boot(&Boot::firmware(&image, switches)).expect("it gets ready"))
}

/// Runs a shell line next to the interface.
fn beside(tap: &TapMachine, line: &str) -> (Finished, String) {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let place = Place { netns: Some(&tap.home.netns), cpus: &[] };
    let mut child = Child::spawn(command, &place).expect("it starts");
    let finished = child.wait(Duration::from_secs(30)).expect("it can be waited for");
    let finished = finished.unwrap_or_else(|| panic!("{line} does not end"));
    let text = [&finished.stdout[..], &finished.stderr[..]].concat();
    (finished, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn ping_of_every_size_that_fits_a_frame_is_answered() {
    if !has("ping") {
        return;
    }
    for switches in ["", ALL, "quiet,async-tx,lazy-reap,icmp-in-irq", ALL_AND_BEYOND] {
        let Some(tap) = on_tap(switches) else { return };
        for bytes in [0, 1, 8, 15, 16, 17, 18, 19, 56, 511, 1024, 1471, 1472] {
            // One each: of several, ping gives the last up after 50 ms, busy machine or not.
            let report = tap.ping(1, bytes).expect("it reports");
            assert_eq!((report.sent_count, report.lost_count()), (1, 0), "{switches} {bytes}");
            assert_eq!(report.duplicated_count, 0, "{switches} {bytes}");
            let timed = if bytes < 16 { 0 } else { 1 };
            assert_eq!(report.times_ns.len(), timed, "{switches} {bytes}");
        }
    }
}

#[test]
fn arping_gets_the_station_s_address() {
    if !has("arping") {
        return;
    }
    let Some(tap) = on_tap(ALL) else { return };
    let (to, from) = (tap.home.guest_ip, tap.home.host_ip);
    // Two programs bear the name; both know these.
    let (done, text) = beside(&tap, &format!("arping -c 2 -I {TAP_IFNAME} {to}"));
    assert!(done.status.success(), "{text}");
    assert!(text.contains("52:54:00:12:34:56"), "the card's own address: {text}");
    let nobody = std::net::Ipv4Addr::from(u32::from(from) + 100);
    let (failed, text) = beside(&tap, &format!("arping -c 1 -w 1 -I {TAP_IFNAME} {nobody}"));
    assert!(!failed.status.success(), "nobody answers for others: {text}");
}

#[test]
fn socat_gets_its_datagrams_back() {
    if !has("socat") {
        return;
    }
    let Some(tap) = on_tap(ALL) else { return };
    let to = tap.home.guest_ip;
    for payload in ["x", "an echo by socat", &"long ".repeat(290)] {
        let line = format!("printf '%s' '{payload}' | socat -T 1 -b 2000 - UDP4:{to}:7");
        let (done, text) = beside(&tap, &line);
        assert!(done.status.success(), "{text}");
        assert_eq!(text, payload);
    }
}
