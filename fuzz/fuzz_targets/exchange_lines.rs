//! Bytes from another end of the exchange.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| remote::fuzzing::exchange_lines(bytes));
