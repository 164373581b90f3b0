//! What a slot of the trace ring is made of. Apart from [`super::slot`] so that the model checker
//! can put its own in its place and compile the very same slot over it (`tests/model`).

pub(super) use core::sync::atomic::{AtomicU64, Ordering, fence};
