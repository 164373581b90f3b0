//! Model of a virtqueue between driver and device: loom runs the driver's own source against a
//! compliant device, through the interleavings and the values that the memory model allows a load
//! to return (within the bound on preemptions). No buffer is seen half-written, and neither side
//! sleeps through a notification of the other; without any one of the barriers, it finds the fault.

mod device;
#[path = "../../../../../models/interleavings.rs"]
mod interleavings;
mod memory;
mod queue;

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};

use device::{Device, PackedDevice, SplitDevice};
use loom::sync::Notify;
use memory::{Barrier, Shared};
use queue::Queue;
use wirepath_virtio::packed::PackedQueue;
use wirepath_virtio::ring::{Completion, Published};
use wirepath_virtio::split::SplitQueue;

/// Descriptors of a queue.
const SIZE: u16 = 2;

/// Parameters of one iteration of a model.
#[derive(Debug, Clone, Copy)]
struct Case {
    event_idx: bool,
    /// The barrier that the driver omits.
    without: Option<Barrier>,
    /// Maximum preemptions of a side, apart from waiting.
    preemptions: usize,
}

/// The card's line to an interrupt controller that sees only edges.
struct Line {
    is_up: AtomicBool,
    is_heard: AtomicBool,
    edge: Notify,
}

impl Line {
    fn raise(&self) {
        if !self.is_up.swap(true, Ordering::AcqRel) && self.is_heard.load(Ordering::Acquire) {
            self.edge.notify();
        }
    }

    fn acknowledge(&self) {
        self.is_up.swap(false, Ordering::AcqRel);
    }
}

/// State shared by the two sides.
struct Wires {
    memory: Shared,
    doorbell: Notify,
    interrupt: Notify,
}

fn wires(case: Case) -> Arc<Wires> {
    let memory = Shared::new(case.without);
    Arc::new(Wires { memory, doorbell: Notify::new(), interrupt: Notify::new() })
}

/// Posts buffer `n`, with length and address derived from `n`.
fn post<Q: Queue>(queue: &mut Q, wires: &Wires, n: u16) -> bool {
    queue.post(&wires.memory, n, device::address(n), device::len_bytes(n))
}

fn publish<Q: Queue>(queue: &mut Q, wires: &Wires) {
    if queue.publish(&wires.memory) == Published::Ring {
        wires.doorbell.notify();
    }
}

/// The device takes `count` buffers, sleeping whenever there is none, and completes each at once.
fn serve<D: Device>(mut device: D, wires: &Wires, count: u16, interrupt: impl Fn()) {
    for n in 0..count {
        let id = loop {
            if let Some(id) = device.take(&wires.memory, n) {
                break id;
            }
            if !device.arm(&wires.memory) {
                wires.doorbell.wait();
            }
            device.disarm(&wires.memory);
        };
        if device.give(&wires.memory, id, n) {
            interrupt();
        }
    }
}

/// As [`serve`], for a driver that sleeps until an interrupt comes.
fn serve_waking<D: Device>(device: D, wires: &Wires, count: u16) {
    serve(device, wires, count, || wires.interrupt.notify());
}

/// The driver takes `count` completions, from number `from` on, sleeping whenever there is none;
/// while awake, it requests no interrupts.
fn collect<Q: Queue>(queue: &mut Q, wires: &Wires, from: u16, count: u16) {
    queue.disable_interrupts(&wires.memory);
    for n in from..from + count {
        let completion = loop {
            if let Some(completion) = queue.take(&wires.memory) {
                break completion;
            }
            if !queue.enable_interrupts(&wires.memory) {
                wires.interrupt.wait();
            }
            queue.disable_interrupts(&wires.memory);
        };
        let expected = Completion { token: n, len_bytes: device::used_bytes(n) };
        assert_eq!(completion, Ok(expected), "stale completion");
    }
}

/// The driver publishes buffers one by one to a device that may sleep between them.
fn doorbells<Q: Queue, D: Device>(case: Case) {
    let wires = wires(case);
    let mut queue = Q::new(&wires.memory, case.event_idx);
    let device = wires.clone();
    let device = loom::thread::spawn(move || serve_waking(D::new(case.event_idx), &device, SIZE));
    for n in 0..SIZE {
        assert!(post(&mut queue, &wires, n), "there is room");
        publish(&mut queue, &wires);
    }
    device.join().expect("it does not panic");
}

/// The device completes buffers one by one for a driver that may sleep between them.
fn interrupts<Q: Queue, D: Device>(case: Case) {
    interrupts_on::<Q, D>(case, wires(case));
}

fn interrupts_on<Q: Queue, D: Device>(case: Case, wires: Arc<Wires>) {
    let mut queue = Q::new(&wires.memory, case.event_idx);
    for n in 0..SIZE {
        assert!(post(&mut queue, &wires, n), "there is room");
    }
    publish(&mut queue, &wires);
    let device = wires.clone();
    let device = loom::thread::spawn(move || serve_waking(D::new(case.event_idx), &device, SIZE));
    collect(&mut queue, &wires, 0, SIZE);
    device.join().expect("it does not panic");
}

/// A descriptor is reused: the ring wraps.
fn round<Q: Queue, D: Device>(case: Case) {
    let wires = wires(case);
    let mut queue = Q::new(&wires.memory, case.event_idx);
    let device = wires.clone();
    let device =
        loom::thread::spawn(move || serve_waking(D::new(case.event_idx), &device, SIZE + 1));
    for n in 0..SIZE {
        assert!(post(&mut queue, &wires, n), "there is room");
    }
    publish(&mut queue, &wires);
    assert!(!post(&mut queue, &wires, SIZE), "it is full");
    collect(&mut queue, &wires, 0, 1);
    assert!(post(&mut queue, &wires, SIZE), "one has come back");
    publish(&mut queue, &wires);
    collect(&mut queue, &wires, 1, SIZE);
    device.join().expect("it does not panic");
}

/// A start under traffic: the device completes buffers as soon as they are posted, and the driver
/// first looks when an interrupt has come. Its controller listens before or after they are posted.
fn start<Q: Queue, D: Device, const LISTENS_FIRST: bool>(case: Case) {
    let wires = wires(case);
    let line = Arc::new(Line {
        is_up: AtomicBool::new(false),
        is_heard: AtomicBool::new(LISTENS_FIRST),
        edge: Notify::new(),
    });
    let mut queue = Q::new(&wires.memory, case.event_idx);
    let (device, its_line) = (wires.clone(), line.clone());
    let device = loom::thread::spawn(move || {
        serve(D::new(case.event_idx), &device, SIZE, || its_line.raise());
    });
    for n in 0..SIZE {
        assert!(post(&mut queue, &wires, n), "there is room");
    }
    publish(&mut queue, &wires);
    line.is_heard.store(true, Ordering::Release);
    let mut taken = 0;
    while taken < SIZE {
        line.edge.wait();
        line.acknowledge();
        loop {
            while let Some(completion) = queue.take(&wires.memory) {
                let expected = Completion { token: taken, len_bytes: device::used_bytes(taken) };
                assert_eq!(completion, Ok(expected), "stale completion");
                taken += 1;
            }
            if !queue.enable_interrupts(&wires.memory) {
                break;
            }
        }
    }
    device.join().expect("it does not panic");
}

/// A reset in flight: when the device stops, it may have completed a buffer that the driver has not seen.
/// The queue that is then set up in the same memory has none of that life.
fn restart<Q: Queue, D: Device>(case: Case) {
    let wires = wires(case);
    let mut queue = Q::new(&wires.memory, case.event_idx);
    let device = wires.clone();
    let device = loom::thread::spawn(move || {
        let mut card = D::new(case.event_idx);
        if let Some(id) = card.take(&device.memory, SIZE)
            && card.give(&device.memory, id, SIZE)
        {
            device.interrupt.notify();
        }
    });
    // Other buffers than those of the second life.
    for n in SIZE..2 * SIZE {
        assert!(post(&mut queue, &wires, n), "there is room");
    }
    publish(&mut queue, &wires);
    // The status reads 0: the device has stopped.
    device.join().expect("it does not panic");
    interrupts_on::<Q, D>(case, wires);
}

/// Runs a scenario. Returns the fault found, if any.
fn check(scenario: fn(Case), case: Case) -> Result<(), String> {
    interleavings::check(Some(case.preemptions), move || scenario(case))
}

/// Both kinds of queue, with and without EVENT_IDX.
fn hold(split: fn(Case), packed: fn(Case), preemptions: usize) {
    for (kind, scenario) in [("split", split), ("packed", packed)] {
        for event_idx in [false, true] {
            let case = Case { event_idx, without: None, preemptions };
            assert_eq!(check(scenario, case), Ok(()), "{kind}, EVENT_IDX {event_idx}");
        }
    }
}

/// The same without a barrier: the fault found contains `fault`.
fn caught(split: fn(Case), packed: fn(Case), without: Barrier, fault: &str) {
    for (kind, scenario) in [("split", split), ("packed", packed)] {
        for event_idx in [false, true] {
            let case = Case { event_idx, without: Some(without), preemptions: 4 };
            let found = check(scenario, case).expect_err("the mutation must be caught");
            assert!(found.contains(fault), "{kind}, EVENT_IDX {event_idx}: {found}");
        }
    }
}

type Split = SplitQueue<{ SIZE as usize }>;
type Packed = PackedQueue<{ SIZE as usize }>;

#[test]
fn all_interleavings_miss_no_doorbell_and_see_no_stale_descriptor() {
    hold(doorbells::<Split, SplitDevice>, doorbells::<Packed, PackedDevice>, 4);
}

#[test]
fn all_interleavings_miss_no_interrupt_and_see_no_stale_completion() {
    hold(interrupts::<Split, SplitDevice>, interrupts::<Packed, PackedDevice>, 4);
}

#[test]
fn all_interleavings_reuse_descriptors() {
    hold(round::<Split, SplitDevice>, round::<Packed, PackedDevice>, 2);
}

#[test]
fn all_interleavings_of_a_start_under_traffic_find_the_frames_that_came_first() {
    hold(start::<Split, SplitDevice, true>, start::<Packed, PackedDevice, true>, 2);
}

#[test]
fn all_interleavings_of_a_reset_leave_no_completion_of_the_life_before() {
    hold(restart::<Split, SplitDevice>, restart::<Packed, PackedDevice>, 2);
}

#[test]
fn interleavings_with_a_controller_that_listens_late_leave_the_driver_asleep() {
    let late = (start::<Split, SplitDevice, false>, start::<Packed, PackedDevice, false>);
    for scenario in [late.0 as fn(Case), late.1] {
        for event_idx in [false, true] {
            let case = Case { event_idx, without: None, preemptions: 2 };
            let found = check(scenario, case).expect_err("the mutation must be caught");
            assert!(found.contains("deadlock"), "EVENT_IDX {event_idx}: {found}");
        }
    }
}

#[test]
fn interleavings_without_the_write_barrier_see_a_stale_descriptor() {
    let (split, packed) = (doorbells::<Split, SplitDevice>, doorbells::<Packed, PackedDevice>);
    caught(split, packed, Barrier::Write, "stale descriptor");
}

#[test]
fn interleavings_without_the_read_barrier_see_a_stale_completion() {
    let (split, packed) = (interrupts::<Split, SplitDevice>, interrupts::<Packed, PackedDevice>);
    caught(split, packed, Barrier::Read, "stale completion");
}

#[test]
fn interleavings_without_the_full_barrier_leave_the_device_asleep() {
    let (split, packed) = (doorbells::<Split, SplitDevice>, doorbells::<Packed, PackedDevice>);
    caught(split, packed, Barrier::Full, "deadlock");
}

#[test]
fn interleavings_without_the_full_barrier_leave_the_driver_asleep() {
    let (split, packed) = (interrupts::<Split, SplitDevice>, interrupts::<Packed, PackedDevice>);
    caught(split, packed, Barrier::Full, "deadlock");
}
