//! The head of an HTTP request to `wirepath serve` or `--listen`.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "no target uses all of it")]

#[path = "../../crates/house/src/http/message.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http::holds(bytes));
