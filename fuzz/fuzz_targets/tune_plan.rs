//! A plan file, edited by hand or received from others.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| host::tune::fuzzing::plan(bytes));
