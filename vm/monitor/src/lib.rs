//! A small monitor: one processor at privilege level 3, a network card, and a thread for the device.
//!
//! Guests are hostile: what they write into ports, rings and pages is checked by the device
//! model and by guest memory, and a guest that loops or sleeps for ever is stopped by a signal.

mod bus;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/bytes.rs"]
mod bytes;
mod counts;
pub mod lance;
#[cfg(target_arch = "x86_64")]
mod machine;
mod offload;
pub mod virtio;

pub use offload::{OffloadHeader, Offloads};

#[cfg(target_arch = "x86_64")]
pub use machine::*;
