//! Counters and traces as a guest sends them.
#![no_main]

use observe::dump::{Answer, Request};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.bytes()).ok(), Some(request));
    }
    if let Ok(answer) = Answer::parse(bytes) {
        assert!(answer.entries().count() * 16 <= bytes.len());
        answer.counters();
    }
});
