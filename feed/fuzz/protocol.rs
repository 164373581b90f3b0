//! Datagrams of a flow, whose protocol is detected.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| marketdata::fuzzing::protocol(bytes));
