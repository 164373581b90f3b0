//! Telemetry of the firmware without printing: counters, a trace ring, and the datagrams that
//! carry both. The host reads them with the same crate.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod counters;
pub mod dump;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
mod slot;
mod sync;
mod trace;

pub use counters::{COUNTERS, Counter, Counters, Snapshot};
pub use trace::{Entry, Event, Frozen, TRACE_ENTRIES, Trace};
