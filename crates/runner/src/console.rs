//! Messages and progress of a run.

use model::Outcome;

/// Shows the user how a run goes on; a run without a user shows nothing.
pub trait Console {
    /// Shows a message.
    fn say(&self, text: &str);
    /// Shows progress.
    ///
    /// - `done`: thousandths of the time.
    /// - `arm`: of the trial that begins.
    fn progress(&self, done: u64, text: &str, arm: &str);
    /// Removes the progress.
    fn end_progress(&self);
    /// Shows the result so far, if there is a place for it.
    fn result_so_far(&self, outcome: &dyn Fn() -> Outcome);
}
