//! Messages and progress of a run.

use model::Outcome;

/// Shows the user how a run goes on; a run without a user shows nothing.
pub trait Console {
    /// Shows a message.
    fn say(&self, text: &str);
    /// Shows progress.
    ///
    /// - `done`: thousandths of the time.
    fn progress(&self, done: u64, text: &str);
    /// Removes the progress.
    fn end_progress(&self);
    /// Shows the result so far, if the user asked for that.
    fn result_so_far(&self, outcome: &dyn Fn() -> Outcome);
}
