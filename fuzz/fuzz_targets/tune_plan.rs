//! Plans are files that people edit and send each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| host::tune::fuzzing::plan(bytes));
