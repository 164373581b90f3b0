//! Greeting and measurements of the program of a path.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| remote::fuzzing::path_messages(bytes));
