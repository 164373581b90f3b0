//! Frames from the network to the ends of tunnels.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paths::tunnel::fuzzing::decap(bytes));
