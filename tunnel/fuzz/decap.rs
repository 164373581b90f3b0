//! Frames from the network, decapsulated by a tunnel endpoint.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forward::fuzzing::decap(bytes));
