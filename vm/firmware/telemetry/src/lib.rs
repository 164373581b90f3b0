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

/// Files that define the interface between the firmware and the program: command line, counters, trace, dumps.
pub const INTERFACE: [&[u8]; 5] = [
    include_bytes!("../../app/src/config.rs"),
    include_bytes!("../../app/src/switches.rs"),
    include_bytes!("counters.rs"),
    include_bytes!("dump.rs"),
    include_bytes!("trace.rs"),
];

pub use counters::{COUNTERS, Counter, Counters, Snapshot};
pub use trace::{Entry, Event, Frozen, TRACE_ENTRIES, Trace};
