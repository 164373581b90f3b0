//! The head of a request to `wirepath serve`.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "no target uses all of it")]

#[path = "../../crates/cli/src/serve/http.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http::holds(bytes));
