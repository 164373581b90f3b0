//! The firmware in QEMU. Skipped, with the reason on stderr, where image or QEMU are missing.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::link::{Link, US};
use harness::qemu::{Boot, Qemu};
use harness::{flood, ping, selftest};
use observe::{Counter, Event};

const ALL: &str = "quiet,async-tx,lazy-reap,rx-task,no-tx-interrupt,event-idx";
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The image, or why there is none.
#[expect(clippy::print_stderr, reason = "a test that cannot run here says so")]
fn image() -> Option<PathBuf> {
    let image = harness::image().and_then(|image| {
        Command::new("qemu-system-aarch64").arg("--version").stdout(Stdio::null()).status()?;
        Ok(image)
    });
    image.inspect_err(|error| eprintln!("skipped: {error:#}")).ok()
}

fn boot(image: &Path, switches: &str, more: &str) -> (Qemu, Link) {
    let (qemu, link, _) =
        Qemu::boot(&Boot { image, switches, more, qemu: &[] }).expect("it gets ready");
    (qemu, link)
}

#[test]
fn every_arm_answers_arp_icmp_and_udp_of_all_sizes() {
    let Some(image) = image() else { return };
    let alone = ["quiet", "async-tx", "lazy-reap", "rx-task", "no-tx-interrupt", "event-idx"];
    let more = ["icmp-in-irq", ALL, "quiet,async-tx,no-tx-interrupt", "rx-task,icmp-in-irq"];
    for switches in [""].iter().chain(&alone).chain(&more) {
        let (mut qemu, link) = boot(&image, switches, "");
        let station = link.resolve(IP).expect("it has the address");
        for bytes in [0, 1, 18, 56, 1471, 1472] {
            ping::icmp(&link, &station, 5, bytes)
                .unwrap_or_else(|error| panic!("{switches}, {bytes} bytes: {error:#}"));
            ping::udp(&link, &station, 5, bytes)
                .unwrap_or_else(|error| panic!("{switches}, {bytes} bytes: {error:#}"));
        }
        let counters = link.counters(&station, 7).expect("it tells");
        assert_eq!(counters.get(Counter::AnsweredIcmp), 30, "{switches}");
        assert_eq!(counters.get(Counter::AnsweredUdp), 30, "{switches}");
        assert_eq!(counters.get(Counter::RxPackets), 62, "{switches}");
        let errors = counters.get(Counter::RxErrors) + counters.get(Counter::TxErrors);
        assert_eq!(errors, 0, "{switches}");
        let said = qemu.say().expect("the console is there");
        let quiet = !said.contains("rx packet");
        assert_eq!(quiet, switches.contains("quiet"), "{switches}: {said}");
    }
}

#[test]
fn flood_neither_stalls_nor_leaks_and_the_books_agree() {
    let Some(image) = image() else { return };
    for switches in ["quiet", "quiet,async-tx,no-tx-interrupt", ALL] {
        let (_qemu, link) = boot(&image, switches, "");
        let station = link.resolve(IP).expect("it has the address");
        let flood = flood::run(&link, &station, 20_000, 18).expect("it does not stall");
        assert_eq!(flood.discrepancies(), [""; 0], "{switches}");
        ping::icmp(&link, &station, 10, 56).expect("it still answers");
    }
}

#[test]
fn trace_tells_the_last_things_that_happened_in_order() {
    let Some(image) = image() else { return };
    let (_qemu, link) = boot(&image, ALL, "");
    let station = link.resolve(IP).expect("it has the address");
    ping::icmp(&link, &station, 200, 56).expect("it answers");
    let entries = link.trace(&station, 9).expect("it tells");
    assert_eq!(entries.len(), 256);
    assert!(entries.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    let known = entries.iter().filter(|entry| Event::of(entry.event).is_some()).count();
    assert_eq!(known, 256);
    let posted = entries.iter().filter(|entry| entry.event == Event::Posted as u16).count();
    assert!(posted >= 30, "{posted} sends in {entries:?}");
}

#[test]
fn address_is_taken_from_the_command_line() {
    let Some(image) = image() else { return };
    let (_qemu, link) = boot(&image, "quiet", "ip=10.0.0.9 mac=02:00:00:00:00:99");
    let station = link.resolve(Ipv4Addr::new(10, 0, 0, 9)).expect("it has the address");
    assert_eq!(station.mac, [2, 0, 0, 0, 0, 0x99]);
    ping::icmp(&link, &station, 1, 56).expect("it answers");
    assert_ne!(station.mac, US.mac);
}

#[test]
fn keys_on_the_console_dump_and_switch_off() {
    let Some(image) = image() else { return };
    let boot = Boot { image: &image, switches: "quiet", more: "", qemu: &[] };
    let said = Qemu::press(&boot, b"?dq", Duration::from_secs(20)).expect("it switches off");
    assert!(said.contains("d: dump counters and trace; q: switch off"), "{said}");
    assert!(said.contains("tx_packets 1\n"), "{said}");
    assert!(said.contains(" posted 42\n"), "{said}");
    assert!(said.ends_with("wirepath-guest: off\n"), "{said}");
}

#[test]
fn unknown_switch_is_refused_with_a_message() {
    let Some(image) = image() else { return };
    let boot = Boot { image: &image, switches: "quiet,warp", more: "", qemu: &[] };
    let said = Qemu::run_to_end(&boot, Duration::from_secs(20)).expect("it switches off");
    assert!(said.contains("refused: unknown switch \"warp\"; there are quiet async-tx"), "{said}");
}

#[test]
fn kernel_passes_its_tests_on_the_machine() {
    let Some(image) = image() else { return };
    let lines = selftest::run(&image).expect("it reaches its end");
    let names: Vec<&str> = lines.iter().map(|line| &line.name[..]).collect();
    let expected = [
        "priority-inversion",
        "time-out",
        "task-switch",
        "registers",
        "semaphore-from-interrupt",
        "queue-from-interrupt",
        "interrupt-nesting",
    ];
    assert_eq!(names, expected);
    assert!(lines.iter().all(|line| line.passed), "{lines:?}");
    let registers = lines.iter().find(|line| line.name == "registers").expect("it ran");
    assert!(registers.figure("switches") >= Some(10_000), "{registers:?}");
    assert!(registers.figure("held") > Some(1000), "{registers:?}");
}

#[test]
fn stack_overflow_is_caught_by_the_guard() {
    let Some(image) = image() else { return };
    let said = selftest::overflow(&image).expect("it switches off");
    assert!(said.contains("stack overflow: stack 2, task Some(40)"), "{said}");
    assert!(!said.contains("FAILED"), "{said}");
}

#[test]
fn qemu_dies_with_the_harness_however_that_ends() {
    let Some(image) = image() else { return };
    let mut harness = Command::new(env!("CARGO_BIN_EXE_wirepath-guest-harness"))
        .args(["ping", "quiet", "--count", "100000000", "--image"])
        .arg(&image)
        .stdout(Stdio::null())
        .spawn()
        .expect("it was built");
    let pid = harness.id();
    let deadline = Instant::now() + Duration::from_secs(20);
    let qemu = loop {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        // Until setpriv has become QEMU, the signal is not set.
        let is_qemu = |child: &&str| {
            std::fs::read_to_string(format!("/proc/{child}/comm"))
                .is_ok_and(|name| name.starts_with("qemu"))
        };
        if let Some(child) = children.split_ascii_whitespace().find(is_qemu) {
            break child.to_owned();
        }
        assert!(Instant::now() < deadline, "no QEMU was started");
        std::thread::sleep(Duration::from_millis(10));
    };
    harness.kill().expect("it runs");
    harness.wait().expect("it ran");
    let deadline = Instant::now() + Duration::from_secs(10);
    // A zombie that nobody collects has no command line any more.
    while std::fs::read(format!("/proc/{qemu}/cmdline")).is_ok_and(|line| !line.is_empty()) {
        assert!(Instant::now() < deadline, "QEMU {qemu} outlives the harness");
        std::thread::sleep(Duration::from_millis(10));
    }
}
