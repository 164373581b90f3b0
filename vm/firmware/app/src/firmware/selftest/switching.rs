//! Tests of switching between tasks.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use board_virt::{registers, timer};
use core::cell::Cell;
use critical_section::Mutex;
use kernel::system::{self, Semaphore};

use super::{Spread, report};

type Slot = Mutex<Cell<Option<Semaphore>>>;

fn put(slot: &Slot, semaphore: Semaphore) {
    critical_section::with(|cs| slot.borrow(cs).set(Some(semaphore)));
}

fn get(slot: &Slot) -> Semaphore {
    critical_section::with(|cs| slot.borrow(cs).get()).expect("set by the test")
}

static LOG: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
static LOGGED: AtomicUsize = AtomicUsize::new(0);
static MUTEX: Slot = Mutex::new(Cell::new(None));

fn log(step: u64) {
    let at = LOGGED.fetch_add(1, Ordering::Relaxed);
    if let Some(slot) = LOG.get(at) {
        slot.store(step, Ordering::Relaxed);
    }
}

/// Priorities are not inherited, as documented: the middle task runs while the urgent one waits
/// for a semaphore that the least urgent one holds.
pub(super) fn priority_inversion() {
    put(&MUTEX, Semaphore::new(1));
    let _ = get(&MUTEX).pend(0);
    log(501);
    board_virt::spawn(
        30,
        |_| {
            log(301);
            let _ = get(&MUTEX).pend(0);
            log(302);
        },
        0,
    );
    log(502);
    board_virt::spawn(
        40,
        |_| {
            log(401);
            timer::spin_ns(1_000_000);
            log(402);
        },
        0,
    );
    log(503);
    let _ = get(&MUTEX).post();
    log(504);
    let expected = [501, 301, 502, 401, 402, 503, 302, 504];
    let passed = LOGGED.load(Ordering::Relaxed) == expected.len()
        && LOG.iter().zip(expected).all(|(slot, step)| slot.load(Ordering::Relaxed) == step);
    report("priority-inversion", passed, format_args!("steps={}", expected.len()));
}

/// A wait ends after its ticks, not earlier.
pub(super) fn time_out() {
    timer::start(1000, None);
    let semaphore = Semaphore::new(0);
    let before = system::tick_count();
    let outcome = semaphore.pend(5);
    let ticks = system::tick_count() - before;
    system::delay(3);
    let delayed = system::tick_count() - before - ticks;
    timer::stop();
    let passed = outcome.is_err() && (5..=6).contains(&ticks) && (3..=4).contains(&delayed);
    report("time-out", passed, format_args!("ticks={ticks} delayed={delayed}"));
}

static PING: Slot = Mutex::new(Cell::new(None));
static PONG: Slot = Mutex::new(Cell::new(None));
static PONGS: AtomicU64 = AtomicU64::new(0);

/// Two tasks that wake each other: two context switches a turn.
pub(super) fn ping_pong() {
    const TURNS: usize = 1000;
    static TIMES: [AtomicU64; TURNS] = [const { AtomicU64::new(0) }; TURNS];
    put(&PING, Semaphore::new(0));
    put(&PONG, Semaphore::new(0));
    board_virt::spawn(
        31,
        |_| {
            let (ping, pong) = (get(&PING), get(&PONG));
            for _ in 0..TURNS {
                let _ = ping.pend(0);
                PONGS.fetch_add(1, Ordering::Relaxed);
                let _ = pong.post();
            }
        },
        0,
    );
    let (ping, pong) = (get(&PING), get(&PONG));
    let switches = system::switch_count();
    for time in &TIMES {
        let start = timer::count();
        let _ = ping.post();
        let _ = pong.pend(0);
        time.store(timer::ns_of(timer::count() - start) / 2, Ordering::Relaxed);
    }
    let switches = system::switch_count() - switches;
    let mut times = core::array::from_fn::<u64, TURNS, _>(|at| TIMES[at].load(Ordering::Relaxed));
    let spread = Spread::of(&mut times);
    let passed = PONGS.load(Ordering::Relaxed) == TURNS as u64 && switches == 2 * TURNS as u64;
    report("task-switch", passed, format_args!("switches={switches} {spread}"));
}

/// Context switches during which registers are checked.
const SWITCHES: u64 = 10_000;
static FIRST: Slot = Mutex::new(Cell::new(None));
static SECOND: Slot = Mutex::new(Cell::new(None));
static DONE: AtomicBool = AtomicBool::new(false);
static TICKS: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static WRONG_REGISTER: AtomicU64 = AtomicU64::new(0);

fn hold(pattern: u64) {
    HELD.fetch_add(1, Ordering::Relaxed);
    let wrong = registers::hold(pattern);
    if wrong != 0 {
        WRONG.fetch_add(1, Ordering::Relaxed);
        WRONG_REGISTER.store(wrong - 1, Ordering::Relaxed);
    }
}

fn holder(number: usize) {
    let wake = get([&FIRST, &SECOND][number]);
    while !DONE.load(Ordering::Relaxed) {
        let _ = wake.pend(0);
        hold(0x1111_2222_3333_4400 * (number as u64 + 1));
    }
}

/// On each tick: the second task, then the first (preempting the second), then three ticks for the
/// testing task.
fn wake_holders() {
    let slot = match TICKS.fetch_add(1, Ordering::Relaxed) % 5 {
        0 => &SECOND,
        1 => &FIRST,
        _ => return,
    };
    let _ = get(slot).post();
}

/// Three tasks keep patterns in all registers while interrupts switch between them.
pub(super) fn registers() {
    put(&FIRST, Semaphore::new(0));
    put(&SECOND, Semaphore::new(0));
    board_virt::spawn(32, holder, 0);
    board_virt::spawn(33, holder, 1);
    let start = system::switch_count();
    timer::start(20_000, Some(wake_holders));
    while system::switch_count() - start < SWITCHES {
        hold(0xfeed_0000_dead_0000);
    }
    let switches = system::switch_count() - start;
    DONE.store(true, Ordering::Relaxed);
    timer::start(1000, None);
    for slot in [&FIRST, &SECOND] {
        let _ = get(slot).post();
    }
    system::delay(5);
    timer::stop();
    let (held, wrong) = (HELD.load(Ordering::Relaxed), WRONG.load(Ordering::Relaxed));
    let register = WRONG_REGISTER.load(Ordering::Relaxed);
    report(
        "registers",
        wrong == 0,
        format_args!("switches={switches} held={held} wrong={wrong} register={register}"),
    );
}
