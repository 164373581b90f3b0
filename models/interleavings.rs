//! Runs a scenario of a model under loom. Included with `#[path]`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Checks all interleavings of a scenario. Errors: the fault found.
///
/// - `preemptions`: maximum number of preemptions per execution, not counting voluntary waits; `None`
///   for no limit.
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
        assert!(runs > 30, "only {runs} interleavings; expected at least two threads");
    }
    checked.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    })
}
