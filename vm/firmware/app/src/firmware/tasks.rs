//! The responder's tasks and interrupts.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use app::responder::{Dump, KernelGauges, Parts};
use app::{Config, Platform, Responder, Switch};
use board_virt::gpio::Pin;
use board_virt::tree::Machine;
use board_virt::{Dma, Place, Window, console, interrupts, power, timer};
use critical_section::Mutex;
use kernel::system::{self, Queue, Semaphore};
use telemetry::dump::{DumpKind, Request};
use telemetry::{Counter, Counters, Event, Trace};
use virtio::StartError;

/// A tick is 1 ms: the period of the ticker.
const TICKS_PER_SECOND: u32 = 1000;
/// Ticks without an interrupt of the card or the console after which the idle machine sleeps without ticks. Longer than
/// the pause between two pings of the slowest load: with 10, their shortest round trip took half as long again, because
/// QEMU's threads slept more deeply.
const QUIET_TICKS: u32 = 100;
/// Ticks after which a dump is dropped if the transmit ring stays full.
const DUMP_TICKS_MAX: u32 = 1000;

/// The most urgent task: periodic work, which the network must not delay.
const TICKER: kernel::Priority = 5;
const RECEIVER: kernel::Priority = 10;
const DUMPER: kernel::Priority = 20;

/// Message to the dump task: a request arrived by datagram. Other messages are keys.
const QUESTION: u64 = 0x100;

type TheResponder = Responder<Window, Dma, Virt>;

static COUNTERS: Counters = Counters::new();
static TRACE: Trace = Trace::new();
static RESPONDER: Place<TheResponder> = Place::new();
/// The responder; `None` while a task uses it with interrupts allowed.
static STATION: Mutex<RefCell<Option<&'static mut TheResponder>>> = Mutex::new(RefCell::new(None));
/// The card's interrupt came while a task used the responder.
static DEFERRED: Mutex<Cell<bool>> = Mutex::new(Cell::new(false));
static WAKE: Mutex<Cell<Option<Semaphore>>> = Mutex::new(Cell::new(None));
static DUMPS: Mutex<Cell<Option<Queue>>> = Mutex::new(Cell::new(None));
/// Times at which ticks were due, for the ticker.
static TICKS: Mutex<Cell<Option<Queue>>> = Mutex::new(Cell::new(None));
/// Ticks since the last interrupt of the card or the console. Interrupts write it, and no clock is read for it.
static QUIET: AtomicU32 = AtomicU32::new(0);
/// Longest lateness of the ticker since the last snapshot, nanoseconds.
static TICK_LATE_NS_MAX: AtomicU64 = AtomicU64::new(0);

/// The board as a [`Platform`].
struct Virt {
    pin: Option<Pin>,
    wake: Semaphore,
    dumps: Queue,
}

impl Platform for Virt {
    fn now_ns(&self) -> u64 {
        timer::now_ns()
    }

    fn udelay(&self, us: u32) {
        timer::spin_ns(u64::from(us) * 1000);
    }

    fn print(&self, text: fmt::Arguments<'_>) {
        console::print(text);
    }

    fn toggle(&mut self) {
        if let Some(pin) = &mut self.pin {
            pin.toggle();
        }
    }

    fn wake_receiver(&self) {
        // The semaphore's counter cannot overflow here.
        let _ = self.wake.post();
    }

    fn wake_dumper(&self) {
        // A full queue means that the dump task is awake and will check for requests.
        let _ = self.dumps.post(QUESTION);
    }
}

/// Runs `work` on the responder with interrupts masked.
fn with_responder<T>(work: impl FnOnce(&mut TheResponder) -> T) -> T {
    critical_section::with(|cs| {
        let mut slot = STATION.borrow_ref_mut(cs);
        work(slot.as_mut().expect("the responder was started, and no other task uses it"))
    })
}

/// Runs `work` on the responder with interrupts allowed. If the card's comes meanwhile, it is handled
/// at the end.
///
/// No more urgent task may use the responder: it would find none.
fn with_responder_interruptible<T>(work: impl FnOnce(&mut TheResponder) -> T) -> T {
    let taken = critical_section::with(|cs| STATION.borrow_ref_mut(cs).take());
    let responder = taken.expect("the responder was started, and no other task uses it");
    let result = work(responder);
    critical_section::with(|cs| {
        if DEFERRED.borrow(cs).take() {
            responder.on_interrupt();
        }
        *STATION.borrow_ref_mut(cs) = Some(responder);
    });
    result
}

/// Handles the card's interrupt, or leaves it to the task that uses the responder. The card raises no
/// other until this one is acknowledged.
fn on_net() {
    QUIET.store(0, Ordering::Relaxed);
    critical_section::with(|cs| match STATION.borrow_ref_mut(cs).as_mut() {
        Some(responder) => responder.on_interrupt(),
        None => DEFERRED.borrow(cs).set(true),
    });
}

pub(super) fn run(machine: &Machine, config: &Config<'_>) -> ! {
    let switches = config.switches.in_image();
    let (wake, dumps, ticks) = (Semaphore::new(0), Queue::new(), Queue::new());
    let pin = config.gpio.then(board_virt::gpio_pin).flatten();
    let responder = match start(machine, config, Virt { pin, wake, dumps }) {
        Ok(started) => started,
        Err(error) => {
            console::print(format_args!("wirepath-guest: no network card: {error}\n"));
            power::off()
        }
    };
    critical_section::with(|cs| {
        *STATION.borrow_ref_mut(cs) = Some(RESPONDER.put(responder));
        WAKE.borrow(cs).set(Some(wake));
        DUMPS.borrow(cs).set(Some(dumps));
        TICKS.borrow(cs).set(Some(ticks));
    });
    board_virt::spawn(TICKER, ticker, 0);
    if switches.has(Switch::RxTask) || switches.has(Switch::RxBudget) {
        board_virt::spawn(RECEIVER, receiver, 0);
    }
    board_virt::spawn(DUMPER, dumper, 0);
    let is_polled = with_responder(|responder| responder.is_polled());
    board_virt::spawn(super::IDLE, if is_polled { poller } else { idle }, 0);
    interrupts::on_key(on_key);
    console::listen();
    timer::start(TICKS_PER_SECOND, Some(on_tick));
    let identity = with_responder(|responder| responder.identity());
    let [a, b, c, d, e, f] = identity.mac;
    console::print(format_args!(
        "wirepath-guest ready ip={} mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} \
         switches={switches} after {} us\n",
        identity.ip,
        timer::now_ns() / 1000,
    ));
    with_responder(TheResponder::announce);
    system::start()
}

/// Starts the first virtio window that has a network card.
fn start(
    machine: &Machine,
    config: &Config<'_>,
    platform: Virt,
) -> Result<TheResponder, StartError> {
    let mut error = StartError::NotNet { device: 0 };
    for (window, interrupt) in machine.virtio_windows() {
        match virtio::Transport::probe(board_virt::window(*window), virtio::net::DEVICE_NET) {
            Ok(_) => {
                let memory = Dma::take().expect("only one card is started");
                let parts = Parts {
                    platform,
                    switches: config.switches,
                    ip: config.ip,
                    mac: config.mac,
                    gpio: config.gpio,
                    counters: &COUNTERS,
                    trace: &TRACE,
                };
                // Before the card starts: a frame raises the line at once, and an edge that comes
                // before the controller listens is lost. The card raises no other until it is
                // acknowledged. The CPU takes it when the first task runs.
                interrupts::on_net(*interrupt, on_net);
                return Responder::start(board_virt::window(*window), memory, parts);
            }
            // Empty slots and other devices are skipped; a legacy device is worth a message.
            Err(found @ StartError::Version { .. }) => error = found,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Queues a tick for the ticker. A full queue means that it is many ticks behind: the tick is not
/// served, which shows in the counters.
fn on_tick() {
    QUIET.fetch_add(1, Ordering::Relaxed);
    if let Some(ticks) = critical_section::with(|cs| TICKS.borrow(cs).get()) {
        let _ = ticks.post(timer::tick_due_ns());
    }
}

/// Serves each tick by recording how late it does: a control loop in place of the work of one.
fn ticker(_: usize) {
    let ticks = critical_section::with(|cs| TICKS.borrow(cs).get()).expect("set before the start");
    loop {
        let Ok(due_ns) = ticks.pend(0) else { continue };
        let late_ns = timer::now_ns().saturating_sub(due_ns);
        COUNTERS.add(Counter::TicksServed, 1);
        COUNTERS.add(Counter::TickLateNs, late_ns);
        TICK_LATE_NS_MAX.fetch_max(late_ns, Ordering::Relaxed);
    }
}

/// Receive task, woken by the interrupt. The most urgent task that uses the responder.
fn receiver(_: usize) {
    let wake = critical_section::with(|cs| WAKE.borrow(cs).get()).expect("set before the start");
    loop {
        let _ = wake.pend(0);
        with_responder(TheResponder::woken);
        while with_responder_interruptible(TheResponder::receive_some) {}
    }
}

/// Sleeps when no other task runs: until the next tick, or, once it is quiet and no task waits for a tick, until the card
/// or the console has something.
fn idle(_: usize) {
    loop {
        if QUIET.load(Ordering::Relaxed) < QUIET_TICKS {
            power::wait_for_interrupt();
            continue;
        }
        // With interrupts masked nothing comes between the checks and the sleep. The interrupt that ends it is taken
        // afterwards, and clears the count.
        critical_section::with(|_| {
            if system::needs_no_tick() {
                timer::sleep_without_ticks();
            } else {
                power::wait_for_interrupt();
            }
        });
    }
}

/// Polls for frames when no other task runs.
fn poller(_: usize) {
    loop {
        if with_responder(|responder| responder.has_received()) {
            // A dump request wakes the dump task, which needs the responder: lock out tasks until it
            // is released.
            system::locked(|| with_responder_interruptible(TheResponder::poll));
        }
    }
}

/// Queues console keys for the dump task.
fn on_key() {
    QUIET.store(0, Ordering::Relaxed);
    let dumps = critical_section::with(|cs| DUMPS.borrow(cs).get());
    while let Some(key) = console::key() {
        if let Some(dumps) = dumps {
            let _ = dumps.post(key.into());
        }
    }
}

/// Dump task: sends counters and trace, by datagram and on the console.
fn dumper(_: usize) {
    let dumps = critical_section::with(|cs| DUMPS.borrow(cs).get()).expect("set before the start");
    loop {
        match dumps.pend(0) {
            Ok(QUESTION) => {
                while let Some(dump) = with_responder(TheResponder::take_dump) {
                    send_dump(&dump);
                }
            }
            Ok(key) => on_console(key as u8),
            Err(_) => {}
        }
    }
}

fn snapshot() -> telemetry::Snapshot {
    let gauges = KernelGauges {
        context_switches: system::switch_count(),
        interrupts_nested: interrupts::nested_count(),
        ticks: system::tick_count(),
        ticks_missed: timer::missed_tick_count(),
        tick_late_ns_max: TICK_LATE_NS_MAX.swap(0, Ordering::Relaxed),
    };
    with_responder(|responder| responder.snapshot(gauges))
}

fn send_dump(dump: &Dump) {
    match dump.request.kind {
        DumpKind::Counters => {
            let snapshot = snapshot();
            retry(|| with_responder(|responder| responder.send_counters(dump, &snapshot)));
        }
        DumpKind::Trace => {
            let Some(frozen) = TRACE.freeze() else { return };
            let parts = Request::trace_parts(frozen.entries().count());
            for part in 0..parts {
                let skip = usize::from(part) * telemetry::dump::ENTRIES_MAX;
                retry(|| {
                    let entries = frozen.entries().skip(skip);
                    with_responder(|responder| responder.send_trace(dump, part, parts, entries))
                });
            }
        }
    }
}

/// Retries at each tick until `attempt` succeeds or [`DUMP_TICKS_MAX`] have passed.
fn retry(mut attempt: impl FnMut() -> bool) {
    for _ in 0..DUMP_TICKS_MAX {
        if attempt() {
            return;
        }
        system::delay(1);
    }
}

fn on_console(key: u8) {
    match key {
        b'd' => {
            let snapshot = snapshot();
            for counter in Counter::ALL {
                console::print(format_args!("{} {}\n", counter.name(), snapshot.get(*counter)));
            }
            let Some(frozen) = TRACE.freeze() else { return };
            for entry in frozen.entries() {
                let event = Event::from_number(entry.event).map_or("?", Event::name);
                console::print(format_args!("{} {event} {}\n", entry.time_ns, entry.detail));
            }
        }
        b'q' => {
            console::print(format_args!("wirepath-guest: off\n"));
            power::off()
        }
        _ => console::print(format_args!("d: dump counters and trace; q: switch off\n")),
    }
}
