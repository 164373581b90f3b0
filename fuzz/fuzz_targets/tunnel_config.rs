//! A configuration of `tunnel run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paths::fuzzing::tunnel_config(bytes));
