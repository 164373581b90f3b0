//! The virtio-net driver with a hostile device.
#![no_main]

#[path = "operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::count(virtio::fuzzing::run(bytes)));
