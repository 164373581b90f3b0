//! virtio-mmio (modern), split and packed virtqueues and a virtio-net driver.
//!
//! Nothing here touches memory by itself: device registers come through [`Registers`], shared
//! memory through [`Memory`]. So the same ring and driver logic runs on a bare machine and, under
//! `cargo test`, against a device in plain memory that does what a hostile one would (feature
//! `fake`).
//!
//! What the device writes (indexes, ids, lengths, flags, status) is checked in release builds.
//! Sections are those of the virtio 1.2 specification.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fake"))]
extern crate std;

mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod frames;
#[cfg(any(test, feature = "fake"))]
pub mod fuzzing;
mod ids;
mod indirect;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
mod memory;
pub mod mmio;
pub mod net;
pub mod packed;
pub mod ring;
pub mod split;

pub use error::{DeviceFault, StartError};
pub use frames::{Frame, Ledger};
pub use memory::Memory;
pub use mmio::{Registers, Transport};
