//! The monitor's virtio network card, driven by a hostile guest.
#![no_main]

#[path = "operations.rs"]
mod operations;

use vmm::virtio::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::count(fuzzing::run(bytes).operation_count));
