//! Runs a scenario of a model through loom, for the tests that have one. Included by path.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The fault found, if any.
///
/// - `preemptions`: how often a thread may lose the processor to another, but for waiting; `None`
///   for any number.
pub(crate) fn check(
    preemptions: Option<usize>,
    scenario: impl Fn() + Send + Sync + 'static,
) -> Result<(), String> {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let checked = catch_unwind(AssertUnwindSafe(move || {
        model.check(move || {
            count.fetch_add(1, Ordering::Relaxed);
            scenario();
        });
    }));
    if checked.is_ok() {
        let runs = runs.load(Ordering::Relaxed);
        // The smallest scenario has 41; one thread has one.
        assert!(runs > 30, "{runs} interleavings are no model of two threads");
    }
    checked.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    })
}
