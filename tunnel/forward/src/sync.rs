//! Atomics, a mutex, and the memory orderings that the order protocol depends on. They are separate
//! from [`super::order`] so that the model checker can compile the same protocol with its own types
//! and with weakened choices (`tests/order_model`).

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Maximum number of frames per ticket; a 64-bit mask marks the dropped ones.
pub(super) const BATCH_FRAMES_MAX: usize = 64;

/// Ordering of the store that marks a slot as ready: a thread that reads the mark also sees every
/// earlier write of the worker.
pub(super) const PUBLISH: Ordering = Ordering::Release;

/// Re-check for published tickets after releasing the egress lock if another worker has set the
/// pending flag. Otherwise a ticket published between the last check and the release is stranded.
pub(super) const RECHECK: bool = true;

/// Ordering of the operation that tries the egress lock or sets its pending flag: a notified holder
/// sees what was published before. With a weaker ordering its re-check can miss it.
pub(super) const NOTIFY: Ordering = Ordering::AcqRel;
