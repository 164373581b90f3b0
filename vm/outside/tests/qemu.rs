//! Counts from outside of QEMU's machine against those of its guest, the project's firmware.

use std::path::{Path, PathBuf};

use guest::echo::EchoKind;
use guest::files;
use guest::link::GUEST_IP;
use guest::ping::{self, Until};
use guest::qemu::{self, Boot, GuestMachine};
use guest::telemetry::{Counter, Snapshot};
use hdrhistogram::Histogram;
use testkit::skip;
use wirepath_outside::{
    CardCounts, OutsideCounts, OutsideWatch, Target, ThreadRole, qemu_arguments,
};

const ECHO_COUNT: u32 = 200;
const PAYLOAD_BYTES: usize = 56;
/// As most boards have it.
const BAUD: u32 = 115_200;

/// Switches of the firmware: a split and a packed ring, printing and not, with and without an interrupt for each frame sent.
const ARMS: [&str; 3] = [
    "",
    "quiet,async-tx,lazy-reap,no-tx-interrupt,event-idx",
    "quiet,async-tx,packed,indirect,batching",
];

/// The firmware; `None`, with a skip, if it cannot run.
fn image() -> Option<PathBuf> {
    if qemu::version().is_none() {
        skip("qemu-system-aarch64", "not installed");
        return None;
    }
    files::image().inspect_err(|error| skip("aarch64", error)).ok()
}

/// Counts of one run from outside, by the firmware, and of its console.
struct Run {
    outside: OutsideCounts,
    before: Snapshot,
    after: Snapshot,
    /// Least and most characters that the console's file got meanwhile: the guest may print at both ends.
    console_characters: [u64; 2],
}

impl Run {
    /// Increase of a counter of the firmware, from one request for them to another.
    fn grown(&self, counter: Counter) -> u64 {
        self.after.get(counter) - self.before.get(counter)
    }

    fn card(&self) -> &CardCounts {
        let cards = self.outside.cards().expect("a log");
        assert_eq!(cards.len(), 1, "{cards:?}");
        &cards[0]
    }
}

fn console_bytes(machine: &mut GuestMachine) -> u64 {
    machine.said().len() as u64
}

/// Boots the firmware and sends it echoes.
fn echoes(image: &Path, switches: &str) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let mut boot = Boot::firmware(image, switches).with_words("wirepath.gpio");
    boot.arguments = qemu_arguments(&log);
    let (mut machine, link) = GuestMachine::boot(&boot).expect("it gets ready");
    let peer = link.resolve(GUEST_IP).expect("it has the address");
    let target = Target { pid: machine.pid(), trace_log: Some(log), baud: BAUD };
    let before_begin = console_bytes(&mut machine);
    let watch = OutsideWatch::begin(&target).expect("QEMU runs");
    let after_begin = console_bytes(&mut machine);
    let before = link.counters(&peer, 1).expect("an answer");
    let pinged =
        ping::run(&link, &peer, EchoKind::Icmp, PAYLOAD_BYTES, Until::Count(ECHO_COUNT)).unwrap();
    assert_eq!(pinged.answered_count, u64::from(ECHO_COUNT));
    let after = link.counters(&peer, 2).expect("an answer");
    let before_end = console_bytes(&mut machine);
    let outside = watch.end().expect("its log is there");
    let console_characters =
        [before_end - after_begin, console_bytes(&mut machine) + 1 - before_begin];
    Run { outside, before, after, console_characters }
}

#[test]
fn counts_from_outside_are_those_of_the_firmware_to_the_frame() {
    let Some(image) = image() else { return };
    for switches in ARMS {
        let run = echoes(&image, switches);
        let (card, figures) = (run.card(), run.outside.figures());
        // The firmware's counters lie between two requests: the first request's frame came before the count began, and
        // the answer to the second leaves after it ended. So both are outside's alone, one each way.
        let own_frames = 1;
        let to_guest_count = run.grown(Counter::RxPackets) + own_frames;
        let from_guest_count = run.grown(Counter::TxPackets) + own_frames;
        assert_eq!(card.frames_to_guest_count, to_guest_count, "{switches}");
        assert_eq!(card.buffers_to_guest_count, to_guest_count, "{switches}");
        assert_eq!(card.frames_from_guest_count, from_guest_count, "{switches}");
        assert_eq!(run.outside.frame_count(), Some(to_guest_count + from_guest_count));
        let doorbells = &card.doorbell_counts;
        assert_eq!(doorbells[&1], run.grown(Counter::TxDoorbells) + own_frames, "{switches}");
        let shown = run.grown(Counter::RxDoorbells);
        assert!(
            (shown..=shown + own_frames).contains(doorbells.get(&0).unwrap_or(&0)),
            "{switches}: {shown}"
        );
        assert_eq!(figures["frames_per_doorbell"], 1.0);
        // The firmware raises the pin for each frame that it handles.
        assert_eq!(figures["outside_pin_rises_count"], to_guest_count as f64, "{switches}");

        // Up to two interrupts are those of the two frames above. The firmware's handler looks for a further cause once
        // more, so it may acknowledge a second rise of the line, and that one has no interrupt of its own if a third
        // comes before the handler ends. Without interrupts for frames sent there is no second cause.
        let interrupts = run.grown(Counter::Interrupts);
        let has_one_cause = switches.contains("no-tx-interrupt");
        let second_rises = if has_one_cause { 0 } else { interrupts };
        let lines = run.outside.interrupt_count().expect("a card");
        let allowed = interrupts..=interrupts + 2 * own_frames + second_rises;
        assert!(allowed.contains(&lines), "{switches}: {lines} lines, {interrupts} interrupts");
        assert!(card.notification_count >= lines, "{card:?} {lines}");

        let characters = figures["outside_console_characters_count"];
        let [least, most] = run.console_characters.map(|count| count as f64);
        assert!((least..=most).contains(&characters), "{switches}: {characters} {least} {most}");
        // Ten bits a character.
        let console_ns = characters * 10.0 / f64::from(BAUD) * 1e9;
        assert!((figures["outside_console_ns"] - console_ns).abs() < 1.0);
        assert_eq!(characters > 0.0, switches.is_empty(), "{switches}: {characters}");
    }
}

#[test]
fn stages_of_every_frame_are_timed_and_drawn() {
    let Some(image) = image() else { return };
    let run = echoes(&image, "quiet,async-tx");
    let segments = run.outside.segments();
    for stage in [
        "given_to_doorbell",
        "doorbell_to_taken",
        "taken_to_completed",
        "doorbell_to_completed",
        "taken_to_given",
    ] {
        let count = segments.get(stage).map_or(0, Histogram::len);
        // The last frame may not be complete when the log is read.
        let frames = run.card().frames_from_guest_count;
        assert!((frames - 1..=frames).contains(&count), "{stage}: {count} of {frames}");
    }
    let [outer, inner] =
        ["doorbell_to_completed", "taken_to_completed"].map(|stage| &segments[stage]);
    assert!(outer.min() >= inner.min() && outer.max() >= inner.max());
    let trace: serde_json::Value = serde_json::from_str(&run.outside.timeline()).unwrap();
    let events = trace["traceEvents"].as_array().expect("a list");
    assert_eq!(named(events, "doorbell"), run.card().doorbell_counts.values().sum::<u64>());
    assert_eq!(named(events, "doorbell to taken"), segments["doorbell_to_taken"].len());
    assert_eq!(named(events, "taken to given"), segments["taken_to_given"].len());
}

/// Number of events of a timeline with a name.
fn named(events: &[serde_json::Value], name: &str) -> u64 {
    events.iter().filter(|event| event["name"] == name).count() as u64
}

#[test]
fn threads_of_qemu_have_their_times_and_what_is_missing_has_its_reason() {
    let Some(image) = image() else { return };
    let run = echoes(&image, "quiet,async-tx");
    let vcpus: Vec<_> =
        run.outside.threads.iter().filter(|thread| thread.role == ThreadRole::Vcpu).collect();
    assert!(vcpus.len() == 1 && vcpus[0].name == "CPU 0/TCG", "{:?}", run.outside.threads);
    let figures = run.outside.figures();
    assert!(figures["outside_vcpu_cpu_ns"] > 0.0 && figures["outside_main_cpu_ns"] > 0.0);
    let [missing] = &run.outside.missing[..] else { panic!("{:?}", run.outside.missing) };
    assert!(missing.ends_with("has no machine of KVM"), "{missing}");
    let of_kvm = figures.keys().find(|name| name.contains("exits") || name.contains("injections"));
    assert_eq!(of_kvm, None, "{figures:?}");
}

#[test]
fn process_or_log_that_is_not_there_is_named() {
    let target = Target { pid: 4_000_000_000, trace_log: None, baud: BAUD };
    let said = OutsideWatch::begin(&target).unwrap_err().to_string();
    assert!(said.contains("no process 4000000000"), "{said}");
    let trace_log = Some(PathBuf::from("/nonexistent/log"));
    let said = OutsideWatch::begin(&Target { pid: std::process::id(), trace_log, baud: BAUD })
        .unwrap_err();
    assert!(said.to_string().contains("/nonexistent/log; is it the file of -D"), "{said}");
    let target = Target { pid: std::process::id(), ..target };
    let counts = OutsideWatch::begin(&target).unwrap().end().unwrap();
    assert!(counts.missing.iter().any(|what| what.contains("no trace log")), "{counts:?}");
    assert!(counts.figures().keys().all(|name| name.ends_with("_ns")), "{:?}", counts.figures());
}
