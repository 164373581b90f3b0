//! Answers, counters, output and refusals of the firmware.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use model::PathSwitch;
use wirepath_guest::echo::EchoKind;
use wirepath_guest::link::US;
use wirepath_guest::ping::{self, Until};
use wirepath_guest::qemu::{Boot, GuestMachine};
use wirepath_guest::telemetry::{Counter, Event};
use wirepath_guest::{Switch, flood, selftest};

use super::{ALL, ALL_AND_BEYOND, booted, image};

#[test]
fn every_switch_is_its_bit_and_answers_arp_icmp_and_udp_of_all_sizes() {
    let Some(image) = image() else { return };
    let guests = Switch::SPECS.iter().filter(|switch| switch.scope == model::SwitchScope::Guest);
    let alone = guests.enumerate().map(|(bit, switch)| (switch.id, 1 << bit));
    let sets = [
        ("", 0),
        (ALL, 0x3f),
        ("quiet,async-tx,no-tx-interrupt", 0x13),
        ("rx-task,icmp-in-irq", 0x48),
        ("event-idx,packed", 0xa0),
        ("quiet,async-tx,no-tx-interrupt,packed,indirect", 0x193),
        (ALL_AND_BEYOND, 0x3bf),
    ];
    for (switches, word) in alone.chain(sets) {
        let (mut machine, link, peer) = booted(&Boot::firmware(&image, switches));
        for bytes in [0, 1, 18, 56, 1471, 1472] {
            for kind in [EchoKind::Icmp, EchoKind::Udp] {
                let pinged = ping::run(&link, &peer, kind, bytes, Until::Count(5))
                    .unwrap_or_else(|error| panic!("{switches}, {bytes} bytes: {error}"));
                assert_eq!((pinged.answered_count, pinged.late_count), (5, 0), "{switches}");
            }
        }
        let counters = link.counters(&peer, 7).expect("it answers");
        assert_eq!(counters.get(Counter::Switches), word, "{switches}");
        let has = |id| switches.split(',').any(|on| on == id);
        for (counter, count) in
            [(Counter::AnsweredIcmp, 30), (Counter::AnsweredUdp, 30), (Counter::RxPackets, 62)]
        {
            let expected = if has("no-counters") { 0 } else { count };
            assert_eq!(counters.get(counter), expected, "{switches}");
        }
        let features = counters.get(Counter::Features);
        for (id, bit) in [("event-idx", 29), ("packed", 34), ("indirect", 28)] {
            assert_eq!(features >> bit & 1 == 1, has(id), "{switches}: {id}");
        }
        let tables = if has("indirect") { counters.get(Counter::TxPackets) } else { 0 };
        assert_eq!(counters.get(Counter::TxTables), tables, "{switches}");
        let errors = counters.get(Counter::RxErrors) + counters.get(Counter::TxErrors);
        // On a busy machine QEMU may not get a CPU for as long as the firmware polls; the frame is sent later.
        assert_eq!(errors, counters.get(Counter::TxPollTimeouts), "{switches}");
        let quiet = !machine.said().contains("rx packet");
        assert_eq!(quiet, switches.contains("quiet"), "{switches}: {}", machine.said());
    }
}

#[test]
fn flood_neither_stalls_nor_leaks_and_all_counts_agree() {
    let Some(image) = image() else { return };
    for switches in [
        "quiet",
        "quiet,async-tx,no-tx-interrupt",
        ALL,
        "quiet,async-tx,packed",
        "quiet,async-tx,lazy-reap,event-idx,indirect",
        "quiet,async-tx,rx-task,batching",
        ALL_AND_BEYOND,
    ] {
        let (_machine, link, peer) = booted(&Boot::firmware(&image, switches));
        let flood = flood::run(&link, &peer, 18, Until::Count(20_000)).expect("it completes");
        assert_eq!(flood.sent_count, 20_000);
        assert_eq!(flood.discrepancies(), [""; 0], "{switches}");
        ping::run(&link, &peer, EchoKind::Icmp, 56, Until::Count(10)).expect("it still answers");
    }
}

/// Kernel ticks for each frame in a flood of 150 on a console of 115,200 baud. Not in a time, of which QEMU may have had
/// only a part.
fn ticks_per_frame(image: &std::path::Path, switches: &str) -> f64 {
    let boot = Boot::firmware(image, switches).with_words("wirepath.uart=115200");
    let (_machine, link, peer) = booted(&boot);
    let flood = flood::run(&link, &peer, 18, Until::Count(150)).expect("it completes");
    let received = flood.grown(Counter::RxPackets);
    assert!(received >= 150, "{switches}: {:?}", flood.after);
    flood.grown(Counter::Ticks) as f64 / received as f64
}

#[test]
fn rx_task_leaves_the_kernel_its_ticks_and_without_it_a_flood_takes_them() {
    let Some(image) = image() else { return };
    // A frame takes 6 ms to print, in two lines during which interrupts are masked, and one tick becomes due; a pass of
    // 16 some 100 ms.
    for (switches, is_served) in [
        ("async-tx", false),
        ("rx-task", true),
        ("async-tx,rx-task", true),
        ("async-tx,batching,rx-task", true),
        ("async-tx,poll-mode", true),
        ("async-tx,rx-budget", true),
    ] {
        let ticks = ticks_per_frame(&image, switches);
        testkit::note(&format!("{switches}: {ticks:.2} ticks a frame"));
        let fits = if is_served { ticks > 0.5 } else { ticks < 0.2 };
        assert!(fits, "{switches}: {ticks:.2} ticks a frame");
    }
}

#[test]
fn idle_machine_sleeps_without_ticks_and_traffic_has_all_of_its_own() {
    let Some(image) = image() else { return };
    let (_machine, link, peer) = booted(&Boot::firmware(&image, "quiet,async-tx"));
    let mut token = 0;
    let mut ticks_over = |work: &dyn Fn()| {
        let mut snapshot = || {
            token += 1;
            link.counters(&peer, token).expect("it answers")
        };
        let before = snapshot();
        work();
        let after = snapshot();
        [Counter::UptimeNs, Counter::Ticks, Counter::TicksServed]
            .map(|counter| after.get(counter) - before.get(counter))
    };
    let [uptime_ns, counted, served] =
        ticks_over(&|| std::thread::sleep(Duration::from_millis(2000)));
    // Ticks that were skipped are counted as time, and served by no task.
    let due = uptime_ns / 1_000_000;
    assert!(counted > due / 2 && counted <= due + 1, "{counted} of {due}");
    assert!(served * 4 < counted, "{served} of {counted}");
    let [_, counted, served] = ticks_over(&|| {
        ping::run(&link, &peer, EchoKind::Icmp, 56, Until::Count(3000)).expect("it answers");
    });
    assert!(served * 4 > counted * 3, "{served} of {counted}");
}

#[test]
fn trace_lists_the_latest_events_in_order() {
    let Some(image) = image() else { return };
    let (_machine, link, peer) = booted(&Boot::firmware(&image, ALL));
    ping::run(&link, &peer, EchoKind::Icmp, 56, Until::Count(200)).expect("it answers");
    let entries = link.trace(&peer, 9).expect("it answers");
    assert_eq!(entries.len(), 256);
    assert!(entries.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    assert!(entries.iter().all(|entry| Event::from_number(entry.event).is_some()));
    let posted = entries.iter().filter(|entry| entry.event == Event::Posted as u16).count();
    assert!(posted >= 30, "{posted} sends in {entries:?}");
}

#[test]
fn address_is_taken_from_the_command_line() {
    let Some(image) = image() else { return };
    let ip = Ipv4Addr::new(10, 0, 0, 9);
    let boot = Boot { ip, ..Boot::firmware(&image, "quiet") };
    let boot = boot.with_words("mac=02:00:00:00:00:99");
    let (_machine, link) = GuestMachine::boot(&boot).expect("it gets ready");
    let peer = link.resolve(ip).expect("it has the address");
    assert_eq!(peer.mac, [2, 0, 0, 0, 0, 0x99]);
    ping::run(&link, &peer, EchoKind::Icmp, 56, Until::Count(1)).expect("it answers");
    assert_ne!(peer.mac, US.mac);
}

#[test]
fn keys_on_the_console_dump_and_switch_off() {
    let Some(image) = image() else { return };
    let boot = Boot::firmware(&image, "quiet");
    let (mut machine, mut console, _link) =
        GuestMachine::start_with_console(&boot, None).expect("it starts");
    console.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
    let (mut said, mut byte) = (String::new(), [0]);
    while !said.contains("ready ip=") {
        console.read_exact(&mut byte).expect("it gets ready");
        said.push(byte[0].into());
    }
    console.write_all(b"?dq").expect("it is there");
    console.read_to_string(&mut said).expect("it ends");
    assert!(said.contains("d: dump counters and trace; q: switch off"), "{said}");
    assert!(said.contains("tx_packets 1\n"), "{said}");
    assert!(said.contains(" posted 42\n"), "{said}");
    assert!(said.ends_with("wirepath-guest: off\n"), "{said}");
    let deadline = Instant::now() + Duration::from_secs(20);
    while machine.is_running() {
        assert!(Instant::now() < deadline, "QEMU still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn unknown_switch_is_refused_with_a_message() {
    let Some(image) = image() else { return };
    let boot = Boot::firmware(&image, "quiet,warp");
    let said = GuestMachine::run_to_end(&boot, Duration::from_secs(20)).expect("it powers off");
    assert!(said.contains("refused: unknown switch \"warp\"; there are quiet async-tx"), "{said}");
    let error = GuestMachine::boot(&boot).expect_err("it never gets ready").to_string();
    assert!(error.contains("did not get ready") && error.contains("warp"), "{error}");
}

#[test]
fn card_that_offers_no_packed_ring_is_refused_by_name() {
    let Some(image) = image() else { return };
    // The switch in a place that does not affect QEMU's command line.
    let boot = Boot::firmware(&image, "quiet").with_words("wirepath.switches=packed");
    let said = GuestMachine::run_to_end(&boot, Duration::from_secs(20)).expect("it powers off");
    assert!(said.contains("does not offer VIRTIO_F_RING_PACKED"), "{said}");
}

#[test]
fn failed_start_reports_the_message_of_qemu() {
    let Some(image) = image() else { return };
    let mut boot = Boot::firmware(&image, "quiet");
    boot.arguments = ["-device", "no-such-device"].map(str::to_owned).to_vec();
    let error = GuestMachine::boot(&boot).expect_err("there is none").to_string();
    assert!(error.contains("no-such-device"), "{error}");
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
    let said = selftest::overflow(&image).expect("it powers off");
    assert!(said.contains("stack overflow: stack 2, task Some(40)"), "{said}");
    assert!(!said.contains("FAILED"), "{said}");
}
