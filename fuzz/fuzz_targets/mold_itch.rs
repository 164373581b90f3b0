//! MoldUDP64 packets of ITCH messages as a receiver gets them from anybody.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::mold_itch(bytes));
