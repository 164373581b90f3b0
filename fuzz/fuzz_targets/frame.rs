//! Frames from an untrusted network, parsed as by an engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::frame(bytes));
