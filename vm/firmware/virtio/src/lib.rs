// The example uses the fake device.
#![cfg_attr(any(not(doctest), feature = "fake"), doc = include_str!("../README.md"))]
//!
//! ## Modules
//!
//! Device registers go through [`Registers`], shared memory through [`Memory`]; [`net`] is the driver over both. Sections are those of
//! the virtio 1.2 specification.
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
