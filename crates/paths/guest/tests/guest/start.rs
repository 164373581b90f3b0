//! A start while frames arrive.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use model::{Arm, Path};
use testkit::arms::supported;
use testkit::skip;
use wirepath_guest::echo::Kind;
use wirepath_guest::files;
use wirepath_guest::link::GUEST_IP;
use wirepath_guest::ping::{self, Until};
use wirepath_guest::qemu::{Boot, Machine};

use wirepath_guest::{Guest, Switch};

use super::arms::load;
use super::{ALL, ALL_AND_BEYOND, image};

/// Starts of each set of switches; `$WIREPATH_TEST_STARTS` overrides it.
const STARTS: usize = 12;
const READY_MAX: Duration = Duration::from_secs(30);

/// Ring of either kind, with an interrupt per frame and without.
const SETS: [&str; 5] = ["", ALL, ALL_AND_BEYOND, "packed", "quiet,async-tx,rx-task,packed"];

#[test]
fn every_start_under_traffic_answers() {
    let Some(image) = image() else { return };
    let starts = std::env::var("WIREPATH_TEST_STARTS").ok();
    let starts = starts.map_or(STARTS, |starts| starts.parse().expect("a number of starts"));
    for switches in SETS {
        every_start_answers(&Boot::firmware(&image, switches), starts, switches);
        println!("{switches:?}: {starts} of {starts} starts answered");
    }
    match files::reference() {
        Ok(reference) => every_start_answers(&Boot::reference(reference), starts, "virtio-drivers"),
        Err(error) => skip("aarch64", error),
    }
}

fn every_start_answers(boot: &Boot, starts: usize, name: &str) {
    let silent: Vec<usize> = (0..starts).filter(|_| !answers_after_a_start(boot)).collect();
    assert!(silent.is_empty(), "{name}: {} of {starts} starts: {silent:?}", silent.len());
}

#[test]
fn load_start_times_each_start_to_its_first_answer() {
    if image().is_none() {
        return;
    }
    let load = load("start");
    let mut session = Guest.open(&load).expect("all parts are installed");
    for arm in [Arm::baseline(), Arm::with([Switch::Quiet, Switch::AsyncTx, Switch::Packed])] {
        if !supported(&Guest, &arm, &load) {
            continue;
        }
        let m = session.trial(&arm).expect("each start answers");
        let times = &m.segments["start"];
        assert!(!times.is_empty() && m.deliveries.is_empty(), "{:?}", m.deliveries);
        // An emulator does not start within a millisecond.
        assert!(times.min() > 1_000_000, "{}", times.min());
        assert!(m.not_effective.is_empty(), "{}: {:?}", arm.name, m.not_effective);
    }
}

/// Starts the guest while a frame arrives every 2 ms. Returns true if it answers once it is ready.
fn answers_after_a_start(boot: &Boot) -> bool {
    let (_machine, console, link) = Machine::start_with_console(boot, None).expect("it starts");
    let link = link.expect("a pair of sockets");
    link.connect().expect("QEMU runs");
    let is_ready = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_ready.load(Ordering::Relaxed) {
                link.request(GUEST_IP).expect("the card takes it");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        await_ready(console);
        is_ready.store(true, Ordering::Relaxed);
    });
    // The address may come from an answer to a frame of the start; the echo does not.
    let Ok(peer) = link.resolve(GUEST_IP) else { return false };
    ping::run(&link, &peer, Kind::Icmp, 56, Until::Count(1)).is_ok()
}

fn await_ready(mut console: UnixStream) {
    console.set_read_timeout(Some(READY_MAX)).expect("a time limit");
    let (started, mut said, mut part) = (Instant::now(), Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&said).contains("wirepath-guest ready") {
        assert!(started.elapsed() < READY_MAX, "not ready: {}", String::from_utf8_lossy(&said));
        match console.read(&mut part).expect("it prints") {
            0 => panic!("QEMU ended: {}", String::from_utf8_lossy(&said)),
            len => said.extend_from_slice(&part[..len]),
        }
    }
}
