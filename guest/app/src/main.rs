//! The firmware image for QEMU's `virt`: the station under the kernel.
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "none")]
mod bare;

/// On the host there is nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {}
