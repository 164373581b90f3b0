//! The station's tasks and interrupts.

use core::cell::{Cell, RefCell};
use core::fmt;

use app::station::{Dump, Parts};
use app::{Config, Platform, Station, Switch};
use board_virt::gpio::Pin;
use board_virt::tree::Machine;
use board_virt::{Dma, Window, console, interrupts, power, timer};
use critical_section::Mutex;
use kernel::system::{self, Queue, Semaphore};
use observe::dump::{Request, What};
use observe::{Counter, Counters, Event, Trace};
use virtio::StartError;

/// A tick is 10 ms: nothing here waits for less.
const TICKS_PER_SECOND: u32 = 100;
/// Ticks after which a dump that finds no room is given up.
const DUMP_TICKS_MAX: u32 = 100;

const RECEIVER: kernel::Priority = 10;
const DUMPER: kernel::Priority = 20;

/// Message to the dumper beside keys: a question has come by datagram.
const QUESTION: u64 = 0x100;

type TheStation = Station<Window, Dma, Virt>;

static COUNTERS: Counters = Counters::new();
static TRACE: Trace = Trace::new();
static STATION: Mutex<RefCell<Option<TheStation>>> = Mutex::new(RefCell::new(None));
static WAKE: Mutex<Cell<Option<Semaphore>>> = Mutex::new(Cell::new(None));
static DUMPS: Mutex<Cell<Option<Queue>>> = Mutex::new(Cell::new(None));

/// The board, as the station sees it.
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
        // It cannot count that far.
        let _ = self.wake.post();
    }

    fn wake_dumper(&self) {
        // A full queue means that the dumper is awake, and will look for questions.
        let _ = self.dumps.post(QUESTION);
    }
}

/// Lends the station; interrupts wait.
fn with_station<T>(work: impl FnOnce(&mut TheStation) -> T) -> T {
    critical_section::with(|cs| {
        let mut slot = STATION.borrow_ref_mut(cs);
        work(slot.as_mut().expect("the station was started"))
    })
}

pub(super) fn run(machine: &Machine, config: &Config<'_>) -> ! {
    let (wake, dumps) = (Semaphore::new(0), Queue::new());
    let pin = config.gpio.then(board_virt::gpio_pin).flatten();
    let (station, interrupt) = match start(machine, config, Virt { pin, wake, dumps }) {
        Ok(started) => started,
        Err(error) => {
            console::print(format_args!("wirepath-guest: no network card: {error}\n"));
            power::off()
        }
    };
    critical_section::with(|cs| {
        *STATION.borrow_ref_mut(cs) = Some(station);
        WAKE.borrow(cs).set(Some(wake));
        DUMPS.borrow(cs).set(Some(dumps));
    });
    if config.switches.has(Switch::RxTask) {
        board_virt::spawn(RECEIVER, receiver, 0);
    }
    board_virt::spawn(DUMPER, dumper, 0);
    let is_polled = with_station(|station| station.is_polled());
    board_virt::spawn(super::IDLE, if is_polled { poller } else { super::idle }, 0);
    interrupts::on_net(interrupt, || with_station(TheStation::on_interrupt));
    interrupts::on_key(on_key);
    console::listen();
    timer::start(TICKS_PER_SECOND, None);
    let identity = with_station(|station| station.identity());
    let [a, b, c, d, e, f] = identity.mac;
    console::print(format_args!(
        "wirepath-guest ready ip={} mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} \
         switches={} after {} us\n",
        identity.ip,
        config.switches,
        timer::now_ns() / 1000,
    ));
    with_station(TheStation::announce);
    system::start()
}

/// The first window with a network card behind it.
fn start(
    machine: &Machine,
    config: &Config<'_>,
    platform: Virt,
) -> Result<(TheStation, u32), StartError> {
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
                let station = Station::start(board_virt::window(*window), memory, parts)?;
                return Ok((station, *interrupt));
            }
            // Empty slots and other devices; a legacy one is worth a message.
            Err(found @ StartError::Version { .. }) => error = found,
            Err(_) => {}
        }
    }
    Err(error)
}

/// Receives, woken by the interrupt.
fn receiver(_: usize) {
    let wake = critical_section::with(|cs| WAKE.borrow(cs).get()).expect("it was made");
    loop {
        let _ = wake.pend(0);
        with_station(TheStation::woken);
        while with_station(TheStation::receive_some) {}
    }
}

/// Looks for frames whenever there is nothing else to do. Interrupts come between the looks.
fn poller(_: usize) {
    loop {
        if with_station(|station| station.has_received()) {
            // A question wakes the dumper, which wants the station: not before we have let go.
            system::locked(|| with_station(TheStation::poll));
        }
    }
}

/// Keys come at any time; the dumper looks at them.
fn on_key() {
    let dumps = critical_section::with(|cs| DUMPS.borrow(cs).get());
    while let Some(key) = console::key() {
        if let Some(dumps) = dumps {
            let _ = dumps.post(key.into());
        }
    }
}

/// Answers questions about counters and trace, by datagram and on the console.
fn dumper(_: usize) {
    let dumps = critical_section::with(|cs| DUMPS.borrow(cs).get()).expect("it was made");
    loop {
        match dumps.pend(0) {
            Ok(QUESTION) => {
                while let Some(dump) = with_station(TheStation::take_dump) {
                    send_dump(&dump);
                }
            }
            Ok(key) => on_console(key as u8),
            Err(_) => {}
        }
    }
}

fn snapshot() -> observe::Snapshot {
    let (switches, nested) = (system::switch_count(), interrupts::nested_count());
    with_station(|station| station.snapshot(switches, nested))
}

fn send_dump(dump: &Dump) {
    match dump.request.what {
        What::Counters => {
            let snapshot = snapshot();
            retry(|| with_station(|station| station.send_counters(dump, &snapshot)));
        }
        What::Trace => {
            let Some(frozen) = TRACE.freeze() else { return };
            let parts = Request::trace_parts(frozen.entries().count());
            for part in 0..parts {
                let skip = usize::from(part) * observe::dump::ENTRIES_MAX;
                retry(|| {
                    let entries = frozen.entries().skip(skip);
                    with_station(|station| station.send_trace(dump, part, parts, entries))
                });
            }
        }
    }
}

/// Again at each tick, until it works or takes too long.
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
                let event = Event::of(entry.event).map_or("?", Event::name);
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
