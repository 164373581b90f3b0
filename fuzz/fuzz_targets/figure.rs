//! A figure of the command line, and the output of a program.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lab::adapters::fuzzing::figure(bytes));
