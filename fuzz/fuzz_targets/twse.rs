//! Datagrams of telegrams as a receiver gets them from anybody.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::twse(bytes));
