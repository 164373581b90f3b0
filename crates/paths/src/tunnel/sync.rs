//! What the order protocol is made of: atomics, a mutex, and the choices that its proof rests
//! on. Apart from [`super::order`] so that the model checker can put its own in their place,
//! and mutations of the choices, and compile the very same protocol over them
//! (`tests/order_model`).

pub(super) use std::sync::atomic::{AtomicU64, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Frames that one ticket covers at most. A mask of 64 bits says which are dropped.
pub(super) const BATCH_FRAMES_MAX: usize = 64;

/// How a token says "ready": all that its worker wrote is seen by who sees that.
pub(super) const PUBLISH: Ordering = Ordering::Release;

/// Whether whoever leaves the egress gate and was knocked for looks once more. A token published
/// after the last look and before the gate was open found it closed; nobody else would let it
/// out.
pub(super) const RECHECK: bool = true;

/// How a worker that has published tries the egress gate, and knocks if it is closed: who hears
/// the knock sees what was published. Without, it looks once more and misses it.
pub(super) const KNOCK: Ordering = Ordering::AcqRel;
