//! Everything at once, for long: commands that run all the time, every path in turn beside them,
//! and faults in between. Memory and descriptors stay what they were after the warm-up, the books
//! close, and nothing is left.
//!
//! `WIREPATH_TEST_SOAK=600` sets how many seconds; 20 unless given.

mod common;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, all_text, ip, own_links, run, succeed,
    tunnel_config, until,
};
use serde_json::Value;

const GROUP: &str = "239.77.1.9:10000";
/// What the allocator may still take after the warm-up, bytes.
const GROWTH_BYTES: u64 = 4 << 20;

/// Kinds of rounds, by the fault in them.
const KINDS: usize = 3;

/// One of each path that can run here, each for a moment.
const PROOFS: [&[&str]; 5] = [
    &["probe", "--load", "ping", "--arms", "spin+bypass"],
    &["feed", "--arms", "spin"],
    &["tunnel", "--arms", "rps"],
    &["vmnic", "--arms", "rap-in-kernel"],
    &["guest", "--arms", "quiet"],
];

/// Resident bytes and open descriptors.
#[derive(Debug, Clone, Copy)]
struct Used {
    bytes: u64,
    descriptors: usize,
}

fn used(running: &Running) -> Used {
    let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    let descriptors = fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap().count();
    Used { bytes: kib * 1024, descriptors }
}

/// The commands that run all the time, by name.
struct Residents {
    spaces: Spaces,
    data: Data,
    all: Vec<(&'static str, Running)>,
}

impl Residents {
    fn start() -> Self {
        let (spaces, data) = (Spaces::new(), Data::new());
        let near = &spaces.near;
        spaces.add_port();
        succeed(ip(&["-n", near, "address", "add", "10.78.0.1/24", "dev", "hp"]));
        let config = data.file("tunnel.toml");
        fs::write(&config, tunnel_config("packet", "pa", ("va", NEAR_IP), FAR_IP)).unwrap();
        let begin = |command: Command, says: &str| {
            let mut running = Running::start(command);
            let said = |r: &Running| format!("{}{}", r.stdout(), r.stderr()).contains(says);
            let is_on = until(LONG, || said(&running));
            assert!(is_on && !running.has_ended(), "{}", running.stderr());
            running
        };
        let listen = ["feed", "listen", "--group", GROUP, "-i", "vb", "--json"];
        let replay = ["feed", "replay", "--synthetic", "--rate", "2000", "--to", GROUP, "-i", "va"];
        let replay = [&replay[..], &["-d", "30h", "--json"]].concat();
        let all = vec![
            ("peer", spaces.peer(&[])),
            ("feed listen", begin(spaces.far(&listen), "Ctrl-C ends")),
            (
                "tunnel run",
                begin(spaces.near(&["tunnel", "run", "--config", &config, "--json"]), "tunnel b: "),
            ),
            ("serve", begin(data.wirepath(&["serve", "--port", "0"]), "until Ctrl-C")),
            ("feed replay", Running::start(spaces.near(&replay))),
        ];
        Residents { spaces, data, all }
    }

    fn used(&self) -> Vec<Used> {
        self.all.iter().map(|(_, running)| used(running)).collect()
    }

    fn assert_all_run(&mut self, round: usize) {
        for (name, running) in &mut self.all {
            assert!(!running.has_ended(), "{name} in round {round}: {}", running.stderr());
        }
    }
}

/// One of each that ends by itself, and a fault or two.
fn round(residents: &mut Residents, number: usize) {
    let Residents { spaces, data, all } = residents;
    for engine in ["udp", "packet", "xdp"] {
        let args = ["probe", "ping", FAR_IP, "-c", "50", "--engine", engine, "--json"];
        let output = run(spaces.near(&args));
        assert!(output.status.success(), "{engine}, round {number}: {}", all_text(&output));
        let books: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = books.to_string();
        assert!(!text.contains("ledger_unbalanced_count\":1"), "{engine}: {text}");
    }
    let proof = [&["prove"], PROOFS[number % PROOFS.len()]].concat();
    let short = ["--trial", "20ms", "--max-blocks", "5", "--time", "2s"];
    let running = Running::start(data.wirepath(&[&proof[..], &short].concat()));
    let output = running.finish(LONG * 4).unwrap_or_else(|| panic!("{proof:?} does not end"));
    // What cannot run here is a skip of that path.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{proof:?}: {}", all_text(&output));
    for (name, running) in all.iter() {
        match *name {
            "tunnel run" => running.signal("HUP"),
            // Behind a socket's buffer: nobody waits for it meanwhile.
            "serve" | "peer" => {
                running.signal("STOP");
                thread::sleep(Duration::from_millis(50));
                running.signal("CONT");
            }
            _ => {}
        }
    }
    let set = |what: &[&str]| {
        succeed(ip(&[&["-n", &spaces.far, "link", "set", "dev", "vb"], what].concat()));
    };
    match number % KINDS {
        0 => {
            set(&["mtu", "1400"]);
            set(&["mtu", "1500"]);
        }
        1 => {
            // Down and up again at once: a route that is gone for longer ends a replay.
            set(&["promisc", "on"]);
            set(&["promisc", "off"]);
        }
        _ => {
            // A peer's near end that dies in the middle of a run.
            let args = ["probe", "ping", FAR_IP, "-d", "300s", "--engine", "xdp"];
            let mut near = Running::start(spaces.near(&args));
            near.await_stderr("peer at ");
            near.end_by("KILL", LONG);
            let is_free = || {
                let output = run(spaces.near(&["probe", "ping", FAR_IP, "-c", "1"]));
                output.status.success()
            };
            assert!(until(LONG, is_free), "the peer serves the next");
        }
    }
}

#[test]
fn memory_descriptors_and_books_stay_what_they_are() {
    let seconds =
        std::env::var("WIREPATH_TEST_SOAK").map_or(20, |text| text.parse().expect("seconds"));
    let time = Duration::from_secs(seconds);
    let links = own_links();
    let mut residents = Residents::start();
    let begun = Instant::now();
    // Each kind of round once, and a quarter of the time; then each once more at least.
    let mut warm = None;
    let (mut number, mut rounds_min) = (0, 2 * KINDS);
    while begun.elapsed() < time || number < rounds_min {
        round(&mut residents, number);
        residents.assert_all_run(number);
        number += 1;
        if warm.is_none() && number >= KINDS && begun.elapsed() >= time / 4 {
            warm = Some(residents.used());
            rounds_min = number + KINDS;
        }
    }
    let warm = warm.expect("it was noted");
    for ((name, running), before) in residents.all.iter().zip(&warm) {
        // A connection may still be closing.
        let is_flat = || used(running).descriptors <= before.descriptors;
        assert!(until(LONG, is_flat), "{name}: {before:?}, then {:?}", used(running));
        let after = used(running);
        println!("{name}: {before:?} after the warm-up, {after:?} after {number} rounds");
        assert!(after.bytes <= before.bytes + GROWTH_BYTES, "{name}: {before:?}, then {after:?}");
    }
    let Residents { all, .. } = &mut residents;
    // The replay first, so that what it sent can arrive.
    while let Some((name, running)) = all.pop() {
        let held = running.holdings();
        let output = running.end_by("INT", LONG);
        assert!(output.status.success(), "{name}: {}", all_text(&output));
        held.assert_gone();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let last: Option<Value> =
            said.lines().rev().find_map(|line| serde_json::from_str(line).ok());
        let books = last.unwrap_or_default().to_string();
        let closed = match name {
            "feed listen" => books.contains("\"balanced\":true"),
            "tunnel run" => books.matches("\"in_flight\":0").count() == 2,
            _ => true,
        };
        assert!(closed, "{name}: {books}");
    }
    drop(residents);
    assert_eq!(own_links(), links);
}
