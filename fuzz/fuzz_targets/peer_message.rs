//! A line on the control connection of `wirepath peer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| probe::peer::fuzzing::peer_message(bytes));
