//! The network device as a hostile guest drives it.
#![no_main]

#[path = "../operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::count(paths::vmnic::lance::fuzzing::run(bytes)));
