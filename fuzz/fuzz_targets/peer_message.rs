//! A line on the control connection of `wirepath peer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paths::fuzzing::peer_message(bytes));
