//! A gate that one worker at a time goes through, and nobody waits at.

use super::sync::{AtomicU64, KNOCK, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};

/// Nobody is inside.
const OPEN: u64 = 0;
/// Somebody is. Each more is a knock.
const HELD: u64 = 1;

/// Something that only who has the gate may touch.
///
/// `state` is the gate: its orderings are ours, so that what they say of other memory means
/// something. The mutex is how safe Rust hands out what is inside; as only who has the gate tries
/// it, it is never found locked.
#[derive(Debug)]
pub(super) struct Gate<T> {
    state: AtomicU64,
    inside: Mutex<T>,
}

impl<T> Gate<T> {
    pub(super) fn new(inside: T) -> Gate<T> {
        Gate { state: AtomicU64::new(OPEN), inside: Mutex::new(inside) }
    }

    /// Takes the gate, unless someone has it. Given back when the guard drops, also by a panic.
    pub(super) fn try_enter(&self) -> Option<Inside<'_, T>> {
        self.state.compare_exchange(OPEN, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.entered()
    }

    /// Takes the gate, or leaves a knock: whoever has it then hears of it when it leaves, and
    /// sees all that was written before the knock ([`Inside::leave`]).
    ///
    /// Either comes of one operation on one word, and so does leaving: of the two, one is first.
    /// A fence on either side of the gate does the same, and costs a turn more.
    pub(super) fn enter_or_knock(&self) -> Option<Inside<'_, T>> {
        match self.state.fetch_add(HELD, KNOCK) {
            OPEN => self.entered(),
            _ => None,
        }
    }

    fn entered(&self) -> Option<Inside<'_, T>> {
        let inside = match self.inside.try_lock() {
            Ok(inside) => Some(inside),
            // Whoever panicked in here left our own state whole (`Delivery`, `Intake`); the
            // state of what the caller put inside is the caller's.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let entered = Inside { state: &self.state, inside };
        entered.inside.is_some().then_some(entered)
    }

    pub(super) fn into_inner(self) -> T {
        self.inside.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to what is inside.
pub(super) struct Inside<'a, T> {
    state: &'a AtomicU64,
    inside: Option<MutexGuard<'a, T>>,
}

impl<T> Inside<'_, T> {
    /// What is inside. `None` never happens: see [`Gate::try_enter`].
    pub(super) fn get(&mut self) -> Option<&mut T> {
        self.inside.as_deref_mut()
    }

    /// Opens the gate, and says whether anybody knocked meanwhile. Knocks are heard here alone:
    /// a guard that is dropped loses them.
    pub(super) fn leave(mut self) -> bool {
        self.inside = None;
        let state = self.state;
        // It opens once.
        std::mem::forget(self);
        // Acquire: what was written before a knock is seen from now on.
        state.swap(OPEN, Ordering::AcqRel) > HELD
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.inside = None;
        self.state.store(OPEN, Ordering::Release);
    }
}
