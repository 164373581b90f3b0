//! UDP payloads, parsed as probe datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::probe_header(bytes));
