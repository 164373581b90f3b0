//! virtio-mmio and virtio-pci (modern), split and packed virtqueues and a virtio-net driver.
//!
//! Nothing here accesses memory directly: device registers go through [`Registers`], shared
//! memory through [`Memory`]. The same ring and driver logic therefore runs on a bare machine and,
//! under `cargo test`, against a fake device in plain memory that can be hostile (feature `fake`).
//!
//! All values written by the device (indexes, ids, lengths, flags, status) are checked in release
//! builds.
//! Sections are those of the virtio 1.2 specification.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fake"))]
extern crate std;

mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod frames;
#[cfg(any(test, all(fuzzing, feature = "fake")))]
pub mod fuzzing;
mod ids;
mod indirect;
#[cfg(test)]
#[path = "../../../fuzz/inputs.rs"]
mod inputs;
mod layout;
mod memory;
pub mod mmio;
pub mod net;
pub mod packed;
pub mod pci;
pub mod ring;
pub mod split;

pub use error::{DeviceFault, StartError};
pub use frames::{Frame, Ledger};
pub use memory::Memory;
pub use mmio::{Registers, Transport};
