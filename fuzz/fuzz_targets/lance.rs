//! The network device as a hostile guest drives it.
#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

/// Device operations between two lines on stderr: executions alone say little.
const REPORT_EVERY: u64 = 10_000_000;

static OPERATIONS: AtomicU64 = AtomicU64::new(0);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let count = paths::vmnic::lance::fuzzing::run(bytes);
    let before = OPERATIONS.fetch_add(count, Ordering::Relaxed);
    if before / REPORT_EVERY != (before + count) / REPORT_EVERY {
        eprintln!("{} million device operations", (before + count) / 1_000_000);
    }
});
