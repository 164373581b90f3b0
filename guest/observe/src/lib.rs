//! What the firmware tells about itself without printing: counters, a trace ring, and the
//! datagrams that carry both. The host uses the same crate to read them.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod counters;
pub mod dump;
pub mod fuzzing;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
mod slot;
mod sync;
mod trace;

pub use counters::{COUNTERS, Counter, Counters, Snapshot};
pub use trace::{Entry, Event, Frozen, TRACE_ENTRIES, Trace};
