//! Counts operations of targets whose executions consist of many.

use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations between two progress lines on stderr.
const REPORT_EVERY: u64 = 10_000_000;

static OPERATIONS: AtomicU64 = AtomicU64::new(0);
static ENOUGH: OnceLock<u64> = OnceLock::new();

/// Counts operations and exits after `WIREPATH_FUZZ_OPERATIONS`.
pub(crate) fn count(count: u64) {
    let before = OPERATIONS.fetch_add(count, Ordering::Relaxed);
    let after = before + count;
    if before / REPORT_EVERY != after / REPORT_EVERY {
        eprintln!("{} million operations", after / 1_000_000);
    }
    let enough = ENOUGH.get_or_init(|| {
        let given = env::var("WIREPATH_FUZZ_OPERATIONS").ok();
        given.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
    });
    if after >= *enough {
        eprintln!("DONE after {after} operations");
        // SAFETY: ends the process at once. libFuzzer would report `exit` as a crash.
        unsafe { libc::_exit(0) };
    }
}
