//! The network device as a hostile guest drives it.
#![no_main]

#[path = "../operations.rs"]
mod operations;

use paths::vmnic::lance::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::count(fuzzing::run(bytes)));
