//! Counters and traces received from a guest.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| telemetry::fuzzing::dump(bytes));
