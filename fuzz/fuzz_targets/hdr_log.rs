//! A log of histograms that another program prints.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lab::adapters::fuzzing::hdr_log(bytes));
