//! A JSON export of hyperfine or k6 from an untrusted source.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| report::fuzzing::foreign(bytes));
