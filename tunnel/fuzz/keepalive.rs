//! Frames out of a tunnel, read as keepalives.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "no target uses all of it")]

#[path = "../forward/src/keepalive/mod.rs"]
mod keepalive;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| keepalive::fuzzing::keepalive(bytes));
