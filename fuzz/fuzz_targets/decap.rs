//! Frames from the network, decapsulated by a tunnel endpoint.
//!
//! Includes the files that need no system calls: their crate depends on AF_XDP and BPF programs.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "no target uses all of it")]

#[path = "../../crates/forward/src/decap.rs"]
mod decap;
#[path = "../../crates/forward/src/encap.rs"]
mod encap;
#[path = "../../crates/forward/src/fuzzing.rs"]
mod fuzzing;
#[path = "../../crates/forward/src/inner.rs"]
mod inner;
#[path = "../../crates/forward/src/spec.rs"]
mod spec;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzzing::decap(bytes));
