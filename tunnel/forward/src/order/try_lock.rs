//! Non-blocking lock with a pending flag: a failed attempt notifies the holder.

use super::sync::{AtomicU64, Mutex, MutexGuard, NOTIFY, Ordering, PoisonError, TryLockError};

const UNLOCKED: u64 = 0;
/// Each increment beyond this sets the pending flag.
const LOCKED: u64 = 1;

/// A value that only the lock holder may access.
///
/// `state` is the lock. Its memory orderings are chosen here, because the protocol relies on them
/// for other memory as well. The mutex gives safe access to the value; only the holder of `state`
/// tries it, so it is never contended.
#[derive(Debug)]
pub(super) struct TryLock<T> {
    state: AtomicU64,
    inside: Mutex<T>,
}

impl<T> TryLock<T> {
    pub(super) fn new(inside: T) -> TryLock<T> {
        TryLock { state: AtomicU64::new(UNLOCKED), inside: Mutex::new(inside) }
    }

    /// Acquires the lock; `None` if it is held. The guard releases it on drop, also on a panic.
    pub(super) fn try_lock(&self) -> Option<TryLockGuard<'_, T>> {
        self.state.compare_exchange(UNLOCKED, LOCKED, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.guard()
    }

    /// Acquires the lock, or sets its pending flag: the holder is then notified when it unlocks,
    /// and sees everything written before the flag was set ([`TryLockGuard::unlock`]).
    ///
    /// Acquiring or notifying is a single operation on one word, and so is unlocking. One of them
    /// therefore comes first, and no notification is lost. A fence on each side would be correct as
    /// well, at a higher cost per round.
    pub(super) fn lock_or_notify(&self) -> Option<TryLockGuard<'_, T>> {
        match self.state.fetch_add(LOCKED, NOTIFY) {
            UNLOCKED => self.guard(),
            _ => None,
        }
    }

    fn guard(&self) -> Option<TryLockGuard<'_, T>> {
        let inside = match self.inside.try_lock() {
            Ok(inside) => Some(inside),
            // After a panic the order's own state is consistent (`Delivery`, `Intake`); that of the
            // caller's value is up to the caller.
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let guard = TryLockGuard { state: &self.state, inside };
        guard.inside.is_some().then_some(guard)
    }

    pub(super) fn into_inner(self) -> T {
        self.inside.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Access to the value; releases the lock when dropped.
pub(super) struct TryLockGuard<'a, T> {
    state: &'a AtomicU64,
    inside: Option<MutexGuard<'a, T>>,
}

impl<T> TryLockGuard<'_, T> {
    /// The value. Never `None`: see [`TryLock::try_lock`].
    pub(super) fn get(&mut self) -> Option<&mut T> {
        self.inside.as_deref_mut()
    }

    /// Releases the lock. Returns true if another worker set the pending flag. A guard that is
    /// dropped instead discards the flag.
    pub(super) fn unlock(mut self) -> bool {
        self.inside = None;
        let state = self.state;
        // The guard must not release the lock on drop: the swap below does.
        std::mem::forget(self);
        // Acquire: writes before a notification are visible from here on.
        state.swap(UNLOCKED, Ordering::AcqRel) > LOCKED
    }
}

impl<T> Drop for TryLockGuard<'_, T> {
    fn drop(&mut self) {
        self.inside = None;
        self.state.store(UNLOCKED, Ordering::Release);
    }
}
