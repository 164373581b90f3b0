//! A row of a results file of another user, and its histogram.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| report::fuzzing::stored_row(bytes));
