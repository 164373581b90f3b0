//! Datagrams of telegrams from an untrusted network.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| market::fuzzing::twse(bytes));
