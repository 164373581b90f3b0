//! The monitor's book of exits against KVM's tracepoints, which know nothing of the monitor.

use std::io::{self, Read, Write};
use std::ops::Range;

use outside::{KvmEvent, OutsideCounts, OutsideWatch, Target};
use vmm::lance::{RAP_WORD, RDP, Sent};
use vmm::virtio::register;
use vmm::{GuestEnd, GuestOutcome, GuestTask, IO_BASE, Sender, Silence, Switches, VIRTIO_AT};

use crate::guest;

const COUNT: u64 = 300;
const PAYLOAD_BYTES: u64 = 1514;

struct Sink;

impl Sender for Sink {
    fn send(&mut self, _: &[u8]) -> Sent {
        Sent::Taken
    }

    fn call_count(&self) -> u64 {
        0
    }
}

/// Runs a guest that sends frames, and counts from before its first instruction to its end.
fn watched(switches: Switches) -> Option<(GuestOutcome, OutsideCounts)> {
    let (mut told, tells) = io::pipe().unwrap();
    let (waits, mut release) = io::pipe().unwrap();
    let watcher = std::thread::spawn(move || {
        let mut pid = [0; 4];
        // It ends without a number where no guest can run.
        told.read_exact(&mut pid).ok()?;
        let target = Target { pid: u32::from_ne_bytes(pid), trace_log: None, baud: 0 };
        let watch = OutsideWatch::begin(&target).unwrap();
        release.write_all(&[1]).unwrap();
        Some(watch)
    });
    let task = GuestTask::send(PAYLOAD_BYTES, COUNT);
    let outcome = guest::run(task, switches, || {
        // In the monitor's process, which has a machine already and no running processor.
        (&tells).write_all(&std::process::id().to_ne_bytes())?;
        (&waits).read_exact(&mut [0])?;
        guest::halves(Sink, Silence)
    });
    drop((tells, waits));
    let watch = watcher.join().unwrap()?;
    let (outcome, counts) = (outcome?, watch.end().unwrap());
    assert_eq!(outcome.end, GuestEnd::Done, "{:?}", outcome.total);
    Some((outcome, counts))
}

/// Reads and writes of the ports or addresses in a range.
fn accesses(counts: &OutsideCounts, ways: [KvmEvent; 2], places: Range<u64>) -> [u64; 2] {
    ways.map(|way| counts.kvm_sums(way).range(places.clone()).map(|(_, sum)| sum.count).sum())
}

#[test]
fn exits_of_kvm_are_those_of_the_monitors_book_port_by_port() {
    const PORTS: [KvmEvent; 2] = [KvmEvent::PortRead, KvmEvent::PortWrite];
    let base = u64::from(IO_BASE);
    let [rdp, rap] = [RDP, RAP_WORD].map(|offset| base + u64::from(offset));
    for switches in [Switches::default(), guest::LANCE] {
        let Some((outcome, counts)) = watched(switches) else { return };
        if counts.kvm_events().is_none() {
            return testkit::skip("bpf", counts.missing.join("; "));
        }
        let (book, work) = (&outcome.total.exits, &outcome.total.work);
        let address = accesses(&counts, PORTS, rap..rap + 1);
        // The kernel records writes instead of leaving, and the monitor counts them when it reads them.
        let address_writes = book.rap_write_count + book.coalesced_count;
        assert_eq!(address, [book.rap_read_count, address_writes], "{switches:?}");
        let [reads, writes] = accesses(&counts, PORTS, rdp..rdp + 1);
        assert_eq!(reads, book.csr_read_counts.iter().sum::<u64>());
        // Doorbells are writes, too. One that is rung before the guest stops the device is void to the monitor.
        let doorbells = writes - book.csr_write_counts.iter().sum::<u64>();
        let known = work.doorbell_count..=work.doorbell_count + 1;
        assert!(known.contains(&doorbells), "{doorbells} {work:?}");
        let device = accesses(&counts, PORTS, base..base + 32);
        let others = model::total(device) - model::total(address) - reads - writes;
        assert_eq!(others, book.other_device_count);
        let configuration = model::total(accesses(&counts, PORTS, 0xcf8..0xd00));
        assert_eq!(configuration, book.configuration_count);
        let signal = u64::from(guest_pages::PORT);
        assert_eq!(accesses(&counts, PORTS, signal..signal + 1), [0, book.signal_count]);

        process_exits_are_the_books(&outcome, &counts);
    }
}

#[test]
fn exits_of_kvm_are_those_of_the_monitors_book_address_by_address() {
    let Some((outcome, counts)) = watched(Switches { virtio_net: true, ..Switches::default() })
    else {
        return;
    };
    if counts.kvm_events().is_none() {
        return testkit::skip("bpf", counts.missing.join("; "));
    }
    let book = &outcome.total.exits;
    let memory = [KvmEvent::MemoryRead, KvmEvent::MemoryWrite];
    let device = model::total(accesses(&counts, memory, VIRTIO_AT..VIRTIO_AT + 0x1000));
    assert_eq!(device, book.other_device_count, "{:?}", counts.figures());
    // Of both queues; demands are of the one that sends, and its buffers to receive were shown once.
    let notify = VIRTIO_AT + u64::from(register::QUEUE_NOTIFY);
    let [_, notified] = accesses(&counts, memory, notify..notify + 1);
    let known = book.demand_count..=book.demand_count + 1;
    assert!(known.contains(&notified), "{notified} {book:?}");
    process_exits_are_the_books(&outcome, &counts);
}

fn process_exits_are_the_books(outcome: &GuestOutcome, counts: &OutsideCounts) {
    /// `<linux/kvm.h>`.
    const IO: u64 = 2;
    const MEMORY: u64 = 6;
    let book = &outcome.total.exits;
    let figures = counts.figures();
    let to_process = counts.kvm_sums(KvmEvent::ToProcess);
    let of_guest = [IO, MEMORY].map(|reason| to_process.get(&reason).map_or(0, |sum| sum.count));
    assert_eq!(
        of_guest.iter().sum::<u64>(),
        book.count() - book.interrupted_count,
        "{to_process:?}"
    );
    let interrupted = figures.get("outside_process_exits_interrupted_count").copied();
    assert_eq!(interrupted.unwrap_or(0.0), book.interrupted_count as f64, "{to_process:?}");
    // The kernel's counter is read at the last exit.
    match (figures.get("outside_exits_count"), outcome.total.kernel.get("exits")) {
        (Some(&seen), Some(&counted)) => {
            assert!((seen - counted as f64).abs() <= 1.0, "{figures:?}")
        }
        _ => assert!(counts.missing.iter().any(|what| what.contains("kvm_exit")), "{counts:?}"),
    }
}
