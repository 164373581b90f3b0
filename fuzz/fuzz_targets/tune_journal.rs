//! A journal that may be truncated, damaged, or a file of another program.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| host::tune::fuzzing::journal(bytes));
