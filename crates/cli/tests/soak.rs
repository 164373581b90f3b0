//! Everything at once, for long: commands that run all the time, every path in turn beside them,
//! and faults in between. Memory and descriptors stay what they were after the warm-up, the books
//! close, and nothing is left.
//!
//! `WIREPATH_TEST_SOAK=600` sets how many seconds; 20 unless given. `UPDATE=1` records the figures in
//! tests/goldens/soak.json, from which the test of faults writes docs/internals/faults.md.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, all_text, books, houses, ip, own_links, run,
    succeed, tunnel_config, until,
};
use serde_json::Value;

const GROUP: &str = "239.77.1.9:10000";
/// Maximum growth after the warm-up, bytes: pages that the allocator first touches later, and as much
/// more an hour.
const NOISE_BYTES: u64 = 1 << 20;
const GROWTH_BYTES_PER_HOUR: u64 = 256 << 10;

/// Kinds of rounds, by the fault in them.
const KINDS: usize = 3;

/// One of each path for a moment, with the need that a machine may lack.
const PROOFS: &[(&str, &[&str])] = &[
    ("netns", &["probe", "--load", "ping", "--arms", "spin+bypass"]),
    #[cfg(feature = "feed")]
    ("netns", &["feed", "--arms", "spin"]),
    #[cfg(feature = "tunnel")]
    ("kernel", &["tunnel", "--arms", "rps"]),
    #[cfg(feature = "vm")]
    ("kvm", &["vmnic", "--arms", "rap-in-kernel"]),
    #[cfg(feature = "vm")]
    ("qemu-system-aarch64", &["guest", "--arms", "quiet"]),
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
            let is_on =
                until(LONG, || format!("{}{}", running.stdout(), running.stderr()).contains(says));
            assert!(is_on && !running.has_ended(), "{}", running.stderr());
            running
        };
        let mut all = vec![("peer", spaces.peer(&[]))];
        if houses::FEED {
            let listen = ["feed", "listen", GROUP, "-i", "vb", "--json"];
            all.push(("feed listen", begin(spaces.far(&listen), "Ctrl-C ends")));
        }
        if houses::TUNNEL {
            let run = spaces.near(&["tunnel", "run", &config, "--json"]);
            all.push(("tunnel run", begin(run, "tunnel b: ")));
        }
        all.push(("serve", begin(data.wirepath(&["serve", "--port", "0"]), "until Ctrl-C")));
        if houses::FEED {
            let replay = ["feed", "replay", "--synthetic", "--rate", "2000", "--to", GROUP];
            let replay = [&replay[..], &["-i", "va", "--time", "30h", "--json"]].concat();
            all.push(("feed replay", Running::start(spaces.near(&replay))));
        }
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

/// Output of a command, without the end of its line.
fn line(command: &mut Command) -> String {
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Writes the figures of this run for the page.
fn record(commit: &str, seconds: u64, rounds: usize, rows: &[Value]) {
    let release = line(Command::new("uname").arg("-r"));
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let doc = serde_json::json!({
        "date": line(Command::new("date").args(["-u", "+%F"])),
        "commit": commit,
        "kernel": release.split('-').next(),
        "cpu": model.trim_start_matches(['\t', ' ', ':']),
        "cpu_count": cpus.lines().filter(|line| line.starts_with("processor")).count(),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "seconds": seconds,
        "round_count": rounds,
        "rows": rows,
    });
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/soak.json");
    fs::write(file, format!("{doc:#}\n")).unwrap();
}

/// One of each that ends by itself, and a fault or two.
fn round(residents: &mut Residents, number: usize) {
    let Residents { spaces, data, all } = residents;
    for engine in [&[][..], &["--packet"], &["--arm", "bypass"]] {
        let args = [&["probe", "ping", FAR_IP, "-c", "50", "--json"], engine].concat();
        let output = run(spaces.near(&args));
        assert!(output.status.success(), "{engine:?}, round {number}: {}", all_text(&output));
        assert!(books::probe(&books::last(&output.stdout)) > 0, "{}", all_text(&output));
    }
    // The request goes into the tunnel; nothing answers.
    run(common::enter(&spaces.near, &["ping", "-c", "1", "-W", "1", "10.78.0.9"]));
    let serve = all.iter().find(|(name, _)| *name == "serve").expect("it is a resident");
    let served = books::first_page(&serve.1.stdout());
    assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    let (need, proof) = PROOFS[number % PROOFS.len()];
    let proof = [&["prove"], proof].concat();
    let short = ["--trial", "20ms", "--max-blocks", "6", "--time", "60s"];
    let running = Running::start(data.wirepath(&[&proof[..], &short].concat()));
    let output = running.finish(LONG * 4).unwrap_or_else(|| panic!("{proof:?} does not end"));
    match output.status.code() {
        Some(0) => {}
        Some(3) => testkit::skip(need, all_text(&output)),
        _ => panic!("{proof:?}: {}", all_text(&output)),
    }
    for (name, running) in all.iter() {
        match *name {
            "tunnel run" => running.signal("HUP"),
            // Requests wait in the socket's buffer; no client times out.
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
            // The tunnel's port: without its route a replay would end.
            let hp = |state| succeed(ip(&["-n", &spaces.near, "link", "set", "dev", "hp", state]));
            hp("down");
            thread::sleep(Duration::from_millis(100));
            hp("up");
        }
        _ => {
            // A peer's near end that dies in the middle of a run.
            let args = ["probe", "ping", FAR_IP, "--time", "300s", "--arm", "bypass"];
            let mut near = Running::start(spaces.near(&args));
            near.await_stderr("peer at ");
            near.end_by("KILL", LONG);
            assert!(
                until(LONG, || {
                    let output = run(spaces.near(&["probe", "ping", FAR_IP, "-c", "1"]));
                    output.status.success()
                }),
                "the peer serves the next"
            );
        }
    }
}

#[test]
fn memory_descriptors_and_books_stay_what_they_are() {
    let seconds =
        std::env::var("WIREPATH_TEST_SOAK").map_or(20, |text| text.parse().expect("seconds"));
    let time = Duration::from_secs(seconds);
    // Now, not at the end: the sources may change meanwhile.
    let commit = line(Command::new("git").args(["rev-parse", "--short", "HEAD"]));
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
            warm = Some((begun.elapsed(), residents.used()));
            rounds_min = number + KINDS;
        }
    }
    let (warm_at, warm) = warm.expect("it was noted");
    let since_s = (begun.elapsed() - warm_at).as_secs();
    let growth_bytes_max = NOISE_BYTES + GROWTH_BYTES_PER_HOUR * since_s / 3600;
    let mut rows = Vec::new();
    for ((name, running), before) in residents.all.iter().zip(&warm) {
        // A connection may still be closing.
        let is_flat = || used(running).descriptors <= before.descriptors;
        assert!(until(LONG, is_flat), "{name}: {before:?}, then {:?}", used(running));
        let after = used(running);
        println!("{name}: {before:?} after the warm-up, {after:?} after {number} rounds");
        assert!(
            after.bytes <= before.bytes + growth_bytes_max,
            "{name}: {before:?}, then {after:?}"
        );
        rows.push(serde_json::json!({
            "command": name,
            "warm_bytes": before.bytes,
            "end_bytes": after.bytes,
            "warm_descriptor_count": before.descriptors,
            "end_descriptor_count": after.descriptors,
        }));
    }
    let Residents { all, .. } = &mut residents;
    // The replay first, so that what it sent can arrive.
    let mut carried_count = 0;
    while let Some((name, running)) = all.pop() {
        let held = running.holdings();
        let output = running.end_by("INT", LONG);
        assert!(output.status.success(), "{name}: {}", all_text(&output));
        held.assert_gone();
        let doc = books::last(&output.stdout);
        match name {
            "feed replay" => {
                carried_count = books::replay(&doc);
                assert!(carried_count > 1000 && doc["failure"].is_null(), "{doc:#}");
                // The last ones are on their way.
                thread::sleep(Duration::from_millis(300));
            }
            "feed listen" => assert_eq!(books::listen(&doc), carried_count, "{doc:#}"),
            "tunnel run" => assert!(books::tunnel(&doc) > 0, "{doc:#}"),
            // Their books are those of their clients, checked in each round.
            _ => assert!(matches!(name, "peer" | "serve"), "{name} has books"),
        }
    }
    drop(residents);
    assert_eq!(own_links(), links);
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") && houses::are_all_there() {
        record(&commit, begun.elapsed().as_secs(), number, &rows);
    }
}
