//! The reference firmware: board and kernel are those of `wirepath-guest`, driver and protocols are
//! not. `virtio-drivers` drives the card, and `smoltcp` answers ARP, ICMP and UDP echoes.
//!
//! It is written as the examples of both crates are, with one difference: it sleeps until the card
//! interrupts instead of polling for ever.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod bare;

/// On the host there is nothing to run.
#[cfg(not(target_os = "none"))]
fn main() {}
