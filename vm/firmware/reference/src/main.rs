//! The reference firmware: same board and kernel as `wirepath-guest`, but `virtio-drivers` drives
//! the card and `smoltcp` answers ARP, ICMP and UDP echoes.
//!
//! It follows the examples of both crates, with one difference: it sleeps until the card
//! interrupts instead of polling all the time.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod firmware;

/// The host build is empty.
#[cfg(not(target_os = "none"))]
fn main() {}
