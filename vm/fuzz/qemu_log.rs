//! Trace log of QEMU.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outside::fuzzing::log(bytes));
