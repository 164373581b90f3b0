//! A capture compressed by gzip.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| marketdata::fuzzing::capture_gzip(bytes));
