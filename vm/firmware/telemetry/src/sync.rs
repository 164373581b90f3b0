//! Primitives of a trace slot. Separate from [`super::slot`] so that the model checker can
//! substitute its own and compile the same slot over them (`tests/model`).

pub(super) use core::sync::atomic::{AtomicU64, Ordering, fence};
