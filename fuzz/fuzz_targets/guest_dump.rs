//! Counters and traces as a guest sends them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| observe::fuzzing::dump(bytes));
