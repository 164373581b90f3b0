//! A gate that one worker at a time goes through, and nobody waits at.

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};

/// Something that only who has the gate may touch.
///
/// `held` is the gate: its orderings are ours, so that the fences around it mean something.
/// The mutex is how safe Rust hands out what is inside; as only who has the gate tries it, it
/// is never found locked.
#[derive(Debug)]
pub(super) struct Gate<T> {
    held: AtomicBool,
    inside: Mutex<T>,
}

impl<T> Gate<T> {
    pub(super) fn new(inside: T) -> Gate<T> {
        Gate { held: AtomicBool::new(false), inside: Mutex::new(inside) }
    }

    /// Takes the gate, unless someone has it. Given back when the guard drops, also by a panic.
    pub(super) fn try_enter(&self) -> Option<Inside<'_, T>> {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let inside = match self.inside.try_lock() {
            Ok(inside) => Some(inside),
            // Whoever panicked in here left our own state whole (`Advance`, `Intake`); the
            // state of what the caller put inside is the caller's.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let entered = Inside { held: &self.held, inside };
        entered.inside.is_some().then_some(entered)
    }

    pub(super) fn into_inner(self) -> T {
        self.inside.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to what is inside.
pub(super) struct Inside<'a, T> {
    held: &'a AtomicBool,
    inside: Option<MutexGuard<'a, T>>,
}

impl<T> Inside<'_, T> {
    /// What is inside. `None` never happens: see [`Gate::try_enter`].
    pub(super) fn get(&mut self) -> Option<&mut T> {
        self.inside.as_deref_mut()
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        self.inside = None;
        self.held.store(false, Ordering::Release);
    }
}
