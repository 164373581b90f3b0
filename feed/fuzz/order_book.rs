//! Order books of ITCH from hostile messages, beside those of a plain list of orders.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| marketdata::fuzzing::order_book(bytes));
