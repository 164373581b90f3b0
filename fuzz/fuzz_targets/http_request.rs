//! The head of a request to `wirepath serve`.
#![no_main]
#![allow(dead_code, unreachable_pub, reason = "no target uses all of it")]

use std::net::{Ipv4Addr, SocketAddr};

#[path = "../../crates/cli/src/serve/http.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 7118));
    if let Ok(request) = http::parse(bytes, here) {
        let head = String::from_utf8_lossy(bytes).to_ascii_lowercase();
        // RFC 9112, section 2.2: an empty line in front is passed over.
        let head = head.trim_start();
        assert!(head.contains("127.0.0.1:7118") || head.contains("localhost:7118"));
        assert!(head.starts_with(if request.head_only { "head " } else { "get " }));
    }
});
