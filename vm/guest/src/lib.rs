//! Path `guest`: a bare-metal ARMv8 virtio-net driver in QEMU.
//!
//! The firmware is a separate workspace (`vm/firmware/`). This crate has the machine it runs in, the wire
//! to it, and the loads.

mod accounting;
mod dump;
pub mod echo;
mod endpoint;
mod error;
pub mod files;
pub mod flood;
pub mod link;
mod loads;
mod path;
pub mod ping;
pub mod qemu;
pub mod selftest;
mod session;
pub mod start;
mod support;
mod switches;
pub mod tap;

pub use error::GuestError;
pub use path::Guest;
pub use switches::Switch;
/// Counters and trace of the firmware.
pub use telemetry;
