//! MoldUDP64 packets of ITCH messages from an untrusted network.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| market::fuzzing::mold_itch(bytes));
