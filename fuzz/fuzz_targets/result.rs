//! A result as JSON, written by anybody, and shown.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| report::fuzzing::result(bytes));
