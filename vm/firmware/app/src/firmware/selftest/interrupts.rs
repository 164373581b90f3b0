//! Tests of signalling from an interrupt to a task.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use board_virt::{interrupts, timer};
use critical_section::Mutex;
use kernel::system::{self, Queue, Semaphore};

use super::{Spread, report};

const TURNS: usize = 1000;

static SEMAPHORE: Mutex<Cell<Option<Semaphore>>> = Mutex::new(Cell::new(None));
static QUEUE: Mutex<Cell<Option<Queue>>> = Mutex::new(Cell::new(None));
static WOKEN_AT: AtomicU64 = AtomicU64::new(0);
static WOKEN: AtomicU64 = AtomicU64::new(0);

fn semaphore_handle() -> Semaphore {
    critical_section::with(|cs| SEMAPHORE.borrow(cs).get()).expect("set by the test")
}

/// Spins until the task has woken `count` times, for at most 100 ms. Returns false on timeout.
fn until(count: u64) -> bool {
    let end = timer::now_ns() + 100_000_000;
    while WOKEN.load(Ordering::Relaxed) < count {
        if timer::now_ns() > end {
            return false;
        }
    }
    true
}

/// An interrupt posts a semaphore; the waiting task of higher priority runs when the interrupt
/// ends, before the interrupted task.
pub(super) fn semaphore() {
    static TIMES: [AtomicU64; TURNS] = [const { AtomicU64::new(0) }; TURNS];
    let semaphore = Semaphore::new(0);
    critical_section::with(|cs| SEMAPHORE.borrow(cs).set(Some(semaphore)));
    board_virt::spawn(
        20,
        |_| loop {
            let _ = semaphore_handle().pend(0);
            WOKEN_AT.store(timer::count(), Ordering::Relaxed);
            WOKEN.fetch_add(1, Ordering::Relaxed);
        },
        0,
    );
    interrupts::on_software(|| {
        let _ = semaphore_handle().post();
    });
    let mut passed = true;
    for (turn, time) in TIMES.iter().enumerate() {
        let start = timer::count();
        interrupts::raise();
        passed &= until(turn as u64 + 1);
        let counts = WOKEN_AT.load(Ordering::Relaxed).saturating_sub(start);
        time.store(timer::ns_of(counts), Ordering::Relaxed);
    }
    let mut times = core::array::from_fn::<u64, TURNS, _>(|at| TIMES[at].load(Ordering::Relaxed));
    let spread = Spread::of(&mut times);
    let woken = WOKEN.load(Ordering::Relaxed);
    passed &= woken == TURNS as u64;
    report("semaphore-from-interrupt", passed, format_args!("woken={woken} {spread}"));
}

/// Messages posted in one interrupt arrive in order; a message beyond the capacity is refused.
pub(super) fn queue() {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    let queue = Queue::new();
    critical_section::with(|cs| QUEUE.borrow(cs).set(Some(queue)));
    interrupts::on_software(|| {
        let Some(queue) = critical_section::with(|cs| QUEUE.borrow(cs).get()) else { return };
        for message in 0..=kernel::scheduler::QUEUE_MESSAGES as u64 {
            if queue.post(message).is_err() {
                REFUSED.store(true, Ordering::Relaxed);
            }
        }
    });
    interrupts::raise();
    let mut passed = true;
    timer::start(1000, None);
    for expected in 0..kernel::scheduler::QUEUE_MESSAGES as u64 {
        passed &= queue.pend(100) == Ok(expected);
    }
    passed &= queue.pend(2).is_err() && REFUSED.load(Ordering::Relaxed);
    timer::stop();
    report("queue-from-interrupt", passed, format_args!(""));
}

/// An urgent interrupt preempts another; tasks run only when the outermost has ended.
pub(super) fn nesting() {
    static INSIDE: AtomicBool = AtomicBool::new(false);
    static NESTED: AtomicBool = AtomicBool::new(false);
    static EARLY: AtomicBool = AtomicBool::new(false);
    interrupts::on_software(|| {
        NESTED.store(INSIDE.load(Ordering::Relaxed), Ordering::Relaxed);
        let _ = semaphore_handle().post();
    });
    let (woken, nested) = (WOKEN.load(Ordering::Relaxed), interrupts::nested_count());
    timer::start(
        1000,
        Some(|| {
            if INSIDE.swap(true, Ordering::Relaxed) {
                return;
            }
            let woken = WOKEN.load(Ordering::Relaxed);
            interrupts::raise();
            timer::spin_ns(200_000);
            EARLY.store(WOKEN.load(Ordering::Relaxed) != woken, Ordering::Relaxed);
        }),
    );
    system::delay(5);
    timer::stop();
    let count = interrupts::nested_count() - nested;
    let passed = NESTED.load(Ordering::Relaxed)
        && !EARLY.load(Ordering::Relaxed)
        && count >= 1
        && WOKEN.load(Ordering::Relaxed) == woken + 1;
    report("interrupt-nesting", passed, format_args!("nested={count}"));
}
