//! Sleep until an event, the word that ends it, and the time that interrupt handlers take from it.

use core::sync::atomic::{AtomicU64, Ordering};

use guest_pages::WAKE_AT;

/// Ticks spent in interrupt handlers.
static HANDLER_TICKS: AtomicU64 = AtomicU64::new(0);

/// Ticks spent in interrupt handlers so far, so that callers can subtract them.
pub(crate) fn handler_ticks() -> u64 {
    HANDLER_TICKS.load(Ordering::Relaxed)
}

/// Adds the time of a handler.
pub(crate) fn add_handler_ticks(ticks: u64) {
    HANDLER_TICKS.fetch_add(ticks, Ordering::Relaxed);
}

/// While this word is not 0, [`sleep`](crate::interrupts::sleep) returns at once.
pub(crate) fn wake_word() -> &'static AtomicU64 {
    // SAFETY: the monitor reserves an aligned word there for this use only.
    unsafe { &*(WAKE_AT as *const AtomicU64) }
}

/// Sleeps until `is_so`; every cause of the change must raise an interrupt.
pub(crate) fn sleep_until(mut is_so: impl FnMut() -> bool) {
    loop {
        wake_word().store(0, Ordering::Release);
        if is_so() {
            break;
        }
        crate::idle();
    }
    // The word was cleared here, so set it again: the caller must not sleep through an earlier
    // event, such as a frame that arrived.
    wake_word().store(1, Ordering::Release);
}
