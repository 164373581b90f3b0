//! A configuration file of `tunnel run`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forward::config::fuzzing::tunnel_config(bytes));
