//! A recorded feed: a capture, arbitrated and measured.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| marketdata::fuzzing::feed_report(bytes));
