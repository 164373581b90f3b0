//! A journal may be cut off, damaged, or somebody else's file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| host::tune::fuzzing::journal(bytes));
