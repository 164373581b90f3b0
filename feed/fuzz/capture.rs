//! A capture file: pcap, pcapng, or bare telegrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| marketdata::fuzzing::capture(bytes));
