//! Frames from the network to the ends of tunnels.
//!
//! The tunnel's pure files by themselves: the crate that they belong to would bring AF_XDP and
//! the BPF programs along.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "no target uses all of it")]

#[path = "../../crates/paths/src/tunnel/decap.rs"]
mod decap;
#[path = "../../crates/paths/src/tunnel/encap.rs"]
mod encap;
#[path = "../../crates/paths/src/tunnel/fuzzing.rs"]
mod fuzzing;
#[path = "../../crates/paths/src/tunnel/inner.rs"]
mod inner;
#[path = "../../crates/paths/src/tunnel/spec.rs"]
mod spec;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::decap(bytes));
