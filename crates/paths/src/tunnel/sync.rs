//! What the order protocol is made of: atomics, a mutex, and the choices that its proof rests
//! on. Apart from [`super::order`] so that the model checker can put its own in their place,
//! and mutations of the choices, and compile the very same protocol over them
//! (`tests/order_model`).

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(super) use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Frames that one ticket covers at most. A mask of 64 bits says which are dropped.
pub(super) const BATCH_FRAMES_MAX: usize = 64;

/// How a token says "ready": all that its worker wrote is seen by who sees that.
pub(super) const PUBLISH: Ordering = Ordering::Release;

/// Whether whoever leaves the egress gate looks once more. A token published after the last
/// look and before the gate was open found it closed; nobody else would let it out.
pub(super) const RECHECK: bool = true;

/// Whether fences stand between publishing and trying the gate, and between opening the gate
/// and looking once more. Without, each side may miss what the other wrote.
pub(super) const FENCE: bool = true;
