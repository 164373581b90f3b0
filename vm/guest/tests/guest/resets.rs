//! Resets of the card under a flood: the guest answers after each.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::series::{self, Loss};
use wirepath_guest::GuestError;
use wirepath_guest::echo::{Echo, EchoKind};
use wirepath_guest::link::{Endpoint, FRAME_BYTES_MAX, GUEST_IP, GuestLink};
use wirepath_guest::ping::{self, Until};
use wirepath_guest::qemu::Boot;
use wirepath_guest::telemetry::Counter;

use super::image;
use super::start::{SETS, name};
use super::watched::Watched;

/// Resets of each set of switches, unless the environment has another number.
const RESETS: (&str, usize) = ("WIREPATH_TEST_RESETS", 3);
/// Time limit of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the end of a flood is looked for.
const DRAIN_GRACE: Duration = Duration::from_millis(10);
/// Floods until a fault is met.
const TURNS_MAX: u64 = 5;
/// Size of the rings.
const QUEUE_FRAMES: u64 = 256;
/// Answers of a flood: the buffer that causes the fault is met before, so the last are of the restarted card.
const ANSWERS: u64 = QUEUE_FRAMES + 100;
/// Address of the machine's memory.
const MEMORY_AT: u64 = 0x4000_0000;
/// Descriptors of a split ring and of a packed one: bytes, and offset of the length.
const DESCRIPTOR: (u64, u64) = (16, 8);

/// The card, from QEMU's side: its state, and the memory in which its rings are.
struct Card {
    monitor: BufReader<UnixStream>,
    memory: File,
}

impl Card {
    /// Arguments for QEMU: a second monitor, and memory in a file.
    fn arguments(folder: &Path) -> Vec<String> {
        let at = folder.display();
        let memory = format!("memory-backend-file,id=ram,size=64M,mem-path={at}/memory,share=on");
        let monitor = format!("unix:{at}/second,server=on,wait=off");
        ["-object", &memory, "-machine", "memory-backend=ram", "-qmp", &monitor]
            .map(str::to_owned)
            .to_vec()
    }

    fn open(folder: &Path) -> Card {
        let stream = UnixStream::connect(folder.join("second")).expect("QEMU runs");
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a socket");
        let memory = OpenOptions::new().write(true).open(folder.join("memory"));
        let memory = memory.expect("QEMU has created it");
        let mut card = Card { monitor: BufReader::new(stream), memory };
        card.ask(json!({ "execute": "qmp_capabilities" }));
        card
    }

    /// Asks QEMU's monitor.
    fn ask(&mut self, command: Value) -> Value {
        writeln!(self.monitor.get_mut(), "{command}").expect("QEMU runs");
        loop {
            let mut line = String::new();
            self.monitor.read_line(&mut line).expect("the monitor answers");
            let mut reply: Value = serde_json::from_str(&line).expect("it speaks JSON");
            assert!(reply.get("error").is_none(), "{command}: {reply}");
            if let Some(value) = reply.get_mut("return") {
                return value.take();
            }
        }
    }

    fn query(&mut self, what: &str, queue: Option<u16>) -> Value {
        let mut arguments = json!({ "path": "/machine/peripheral-anon/device[0]" });
        if let Some(queue) = queue {
            arguments["queue"] = queue.into();
        }
        self.ask(json!({ "execute": what, "arguments": arguments }))
    }

    /// Makes a posted receive buffer one of no bytes. QEMU refuses it when its turn comes, sets
    /// DEVICE_NEEDS_RESET, and interrupts for it.
    ///
    /// - `slot`: of an idle ring, all of whose buffers are posted.
    fn spoil(&mut self, slot: u64) {
        let ring = self.query("x-query-virtio-queue-status", Some(0));
        let at = ring["vring-desc"].as_u64().expect("an address") - MEMORY_AT;
        let (bytes, len_at) = DESCRIPTOR;
        self.memory.write_all_at(&[0; 4], at + slot * bytes + len_at).expect("it is in the file");
    }

    /// State of the card and its rings.
    fn state(&mut self) -> String {
        let card = self.query("x-query-virtio-status", None);
        let rings = [0, 1].map(|queue| self.query("x-query-virtio-queue-status", Some(queue)));
        format!("isr {} broken {} {}\n{rings:?}", card["isr"], card["broken"], card["status"])
    }
}

#[test]
fn every_reset_under_a_flood_is_followed_by_answers() {
    let Some(image) = image() else { return };
    let resets = series::number(RESETS.0, RESETS.1);
    for switches in SETS {
        let folder = tempfile::tempdir().expect("a folder");
        let mut boot = Boot::firmware(&image, switches);
        boot.arguments = Card::arguments(folder.path());
        let mut guest = Watched::start(&boot);
        guest.await_ready().expect("it starts");
        let peer = guest.link.resolve(GUEST_IP).expect("it has the address");
        let mut card = Card::open(folder.path());
        let mut count = 0;
        series::all_answered(&format!("guest reset {}", name(switches)), resets, || {
            count += 1;
            reset_under_flood(&mut guest, &mut card, peer, count)?;
            Ok(1)
        });
        // Frames in flight are answered before these.
        let pinged = ping::run(&guest.link, &peer, EchoKind::Icmp, 56, Until::Count(10));
        assert_eq!(pinged.expect("it still answers").answered_count, 10, "{switches}");
        let counters = guest.link.counters(&peer, 1).expect("it answers");
        let posted = counters.get(Counter::FramesReceive);
        assert_eq!(posted, counters.get(Counter::RxRingFrames), "{switches}: frames leaked");
    }
}

/// Resets the card in a flood: sooner or later, by `count`, so with more or fewer frames in its rings. Frames that
/// are in them are lost.
///
/// The guest answers before and after, and its counters show that it restarted the card for the `count`th time.
fn reset_under_flood(
    guest: &mut Watched,
    card: &mut Card,
    peer: Endpoint,
    count: u64,
) -> Result<(), Loss> {
    for slot in (0..TURNS_MAX).map(|turn| (count * 37 + turn) % QUEUE_FRAMES) {
        card.spoil(slot);
        let flooded = flood(&guest.link, peer);
        // After the flood: in the interrupt it would leave the dump's task no time.
        let counters = flooded.and_then(|()| guest.link.counters(&peer, count as u16));
        let why = match counters.map(|counters| counters.get(Counter::Restarts)) {
            Ok(restarts) if restarts == count => return Ok(()),
            // The buffer was being posted when it was spoiled.
            Ok(restarts) if restarts == count - 1 => continue,
            Ok(restarts) => format!("{restarts} restarts after {count} faults"),
            Err(error) => error.to_string(),
        };
        return Err(guest.lost(format!("{why}; {}", card.state())));
    }
    Err(guest.lost(format!("no fault in {TURNS_MAX} floods; {}", card.state())))
}

/// Sends as many echoes as the card takes until [`ANSWERS`] are answered.
fn flood(link: &GuestLink, peer: Endpoint) -> Result<(), GuestError> {
    let is_over = AtomicBool::new(false);
    let echo = Echo::new(EchoKind::Udp, peer, 18)?;
    link.set_receive_timeout(ANSWER_TIMEOUT)?;
    std::thread::scope(|threads| {
        let sender = threads.spawn(|| -> Result<(), GuestError> {
            while !is_over.load(Ordering::Relaxed) {
                link.send(echo.frame())?;
            }
            Ok(())
        });
        let answered = (0..ANSWERS).try_for_each(|_| receive(link));
        is_over.store(true, Ordering::Relaxed);
        // The guest needs room for its answers to take the last frame, whose sender has a time limit.
        link.set_receive_timeout(DRAIN_GRACE)?;
        while answered.is_ok() && !sender.is_finished() {
            link.receive(&mut [0; FRAME_BYTES_MAX])?;
        }
        link.set_receive_timeout(ANSWER_TIMEOUT)?;
        answered
    })
}

fn receive(link: &GuestLink) -> Result<(), GuestError> {
    let came = link.receive(&mut [0; FRAME_BYTES_MAX])?;
    came.map(|_| ()).ok_or_else(|| GuestError::Silent { what: "a flood".to_owned() })
}
