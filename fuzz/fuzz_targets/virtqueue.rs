//! A virtio-net device that lies to the driver.
#![no_main]

#[path = "../operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::count(virtio::fuzzing::run(bytes)));
