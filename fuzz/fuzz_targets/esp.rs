//! ESP packets from the network, and packets that are encrypted and decrypted again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forward::esp::fuzzing::esp(bytes));
