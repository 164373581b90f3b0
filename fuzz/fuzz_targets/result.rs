//! A result as JSON from an untrusted source, read and printed in every format.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| report::fuzzing::result(bytes));
