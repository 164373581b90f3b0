//! Firmware image for QEMU's `virt` board: the responder under the kernel.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "none")]
mod firmware;

/// The host build is empty; it only keeps `cargo check` of the workspace working.
#[cfg(not(target_os = "none"))]
fn main() {}
