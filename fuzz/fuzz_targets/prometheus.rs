//! The answer of a page of metrics, over HTTP or as it is.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| live::sources::fuzzing::prometheus(bytes));
