//! ARP and ICMP messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| wire::fuzzing::arp_icmp(bytes));
