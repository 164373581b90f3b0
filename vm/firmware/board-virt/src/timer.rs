//! The generic timer: clock, delays, kernel tick.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_cpu::registers::{
    CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, Readable, Writeable,
};
use critical_section::Mutex;

use crate::interrupts;

static INTERVAL: AtomicU64 = AtomicU64::new(0);
static ON_TICK: interrupts::Slot = Mutex::new(Cell::new(None));

/// Count at which the last tick was due.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Ticks that were due while another waited.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds per count, with 32 bits of fraction; 0 before the first use.
static NS_PER_COUNT: AtomicU64 = AtomicU64::new(0);

/// The virtual counter, read after all preceding instructions.
pub fn count() -> u64 {
    aarch64_cpu::asm::barrier::isb(aarch64_cpu::asm::barrier::SY);
    CNTVCT_EL0.get()
}

/// Frequency of the counter.
pub fn frequency_hz() -> u64 {
    CNTFRQ_EL0.get().max(1)
}

/// Nanoseconds since the machine started. For time stamps: cheap, and not ordered.
pub fn now_ns() -> u64 {
    ns_of(CNTVCT_EL0.get())
}

/// Converts counts to nanoseconds.
pub fn ns_of(counts: u64) -> u64 {
    let factor = match NS_PER_COUNT.load(Ordering::Relaxed) {
        0 => {
            let factor = (1_000_000_000 << 32) / frequency_hz();
            NS_PER_COUNT.store(factor, Ordering::Relaxed);
            factor
        }
        factor => factor,
    };
    // One multiplication: a 128-bit division took longer than the rest of a time stamp together.
    ((u128::from(counts) * u128::from(factor)) >> 32) as u64
}

/// Busy-waits.
pub fn spin_ns(ns: u64) {
    let start = count();
    while ns_of(count() - start) < ns {
        core::hint::spin_loop();
    }
}

/// Starts the kernel tick. `on_tick` is called at each tick, inside the interrupt.
pub fn start(ticks_per_second: u32, on_tick: Option<fn()>) {
    critical_section::with(|cs| ON_TICK.borrow(cs).set(on_tick));
    let interval = (frequency_hz() / u64::from(ticks_per_second.max(1))).max(1);
    INTERVAL.store(interval, Ordering::Relaxed);
    CNTV_CVAL_EL0.set(count() + interval);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET);
    interrupts::enable_timer();
}

/// Time at which the last tick was due, on the clock of [`now_ns`].
pub fn tick_due_ns() -> u64 {
    ns_of(DUE.load(Ordering::Relaxed))
}

/// Ticks that were due while another waited, and never came.
pub fn missed_tick_count() -> u64 {
    MISSED.load(Ordering::Relaxed)
}

/// Sleeps until an interrupt other than the tick, if no tick is due. The ticks that would have come meanwhile are
/// counted, and no handler is called for them; the next one comes when it would have come.
///
/// Call it with interrupts masked, which does not keep the processor asleep, and only while no task waits for a tick.
pub fn sleep_without_ticks() {
    let next = CNTV_CVAL_EL0.get();
    if count() >= next {
        return;
    }
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
    crate::power::wait_for_interrupt();
    let (now, interval) = (count(), INTERVAL.load(Ordering::Relaxed));
    if now >= next {
        let skipped_count = (now - next) / interval + 1;
        kernel::system::skip_ticks(skipped_count);
        CNTV_CVAL_EL0.set(next + skipped_count * interval);
    }
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET);
}

/// Stops the kernel tick.
pub fn stop() {
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
}

pub(crate) fn on_interrupt() {
    let (now, interval) = (count(), INTERVAL.load(Ordering::Relaxed));
    let due = CNTV_CVAL_EL0.get();
    DUE.store(due, Ordering::Relaxed);
    // Ticks missed, because interrupts were masked or the host paused the guest, are counted but not
    // made up: the next is a full one away.
    MISSED.fetch_add(now.saturating_sub(due) / interval, Ordering::Relaxed);
    let next = due + interval;
    CNTV_CVAL_EL0.set(if next > now { next } else { now + interval });
    kernel::system::tick();
    if let Some(on_tick) = critical_section::with(|cs| ON_TICK.borrow(cs).get()) {
        on_tick();
    }
}
