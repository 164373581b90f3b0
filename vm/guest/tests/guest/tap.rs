//! Common programs against the firmware through a TAP interface.

use std::process::Command;
use std::time::Duration;

use host::child::{Child, ChildPlace, Finished};
use wirepath_guest::qemu::{Boot, TAP_IFNAME};
use wirepath_guest::tap::TapMachine;

use testkit::{is_installed, skip};

use super::{ALL, ALL_AND_BEYOND, image};

fn on_tap(switches: &str) -> Option<TapMachine> {
    let image = image()?;
    if let Err(error) = lab::TapHome::new() {
        skip("tap", error);
        return None;
    }
    Some(TapMachine::boot(&Boot::firmware(&image, switches)).expect("it gets ready"))
}

/// Runs a shell command in the namespace of the interface.
fn beside(tap: &TapMachine, line: &str) -> (Finished, String) {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let place = ChildPlace { netns: Some(&tap.home.netns), cpus: &[] };
    let mut child = Child::spawn(command, &place).expect("it starts");
    let finished = child.wait(Duration::from_secs(30)).expect("it can be waited for");
    let finished = finished.unwrap_or_else(|| panic!("{line} does not end"));
    let text = [&finished.stdout[..], &finished.stderr[..]].concat();
    (finished, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn ping_of_every_size_that_fits_a_frame_is_answered() {
    if !is_installed("ping") {
        return;
    }
    for switches in ["", ALL, "quiet,async-tx,lazy-reap,icmp-in-irq", ALL_AND_BEYOND] {
        let Some(tap) = on_tap(switches) else { return };
        for bytes in [0, 1, 8, 15, 16, 17, 18, 19, 56, 511, 1024, 1471, 1472] {
            // One each: of several, ping waits only 50 ms for the last answer.
            let report = tap.ping(1, bytes).expect("it reports");
            assert_eq!((report.sent_count, report.lost_count()), (1, 0), "{switches} {bytes}");
            assert_eq!(report.duplicated_count, 0, "{switches} {bytes}");
            let timed = if bytes < 16 { 0 } else { 1 };
            assert_eq!(report.times_ns.len(), timed, "{switches} {bytes}");
        }
    }
}

#[test]
fn arping_gets_the_guest_s_address() {
    if !is_installed("arping") {
        return;
    }
    let Some(tap) = on_tap(ALL) else { return };
    let (to, from) = (tap.home.guest_ip, tap.home.host_ip);
    // Two programs have this name; both accept these options.
    let (done, text) = beside(&tap, &format!("arping -c 2 -I {TAP_IFNAME} {to}"));
    assert!(done.status.success(), "{text}");
    assert!(text.contains("52:54:00:12:34:56"), "the card's own address: {text}");
    let unused = std::net::Ipv4Addr::from(u32::from(from) + 100);
    let (failed, text) = beside(&tap, &format!("arping -c 1 -w 1 -I {TAP_IFNAME} {unused}"));
    assert!(!failed.status.success(), "no answer for other addresses: {text}");
}

#[test]
fn socat_gets_its_datagrams_echoed() {
    if !is_installed("socat") {
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
