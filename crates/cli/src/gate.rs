//! `--fail-on`: the end of a command by the answer of its gate.

use house::console;
use model::{Gate, GateAnswer};
use remote::Failure;
use runner::Proven;

/// Answer of a gate on one run, or on a series as one family.
///
/// Errors: worse, or not decided.
pub(crate) fn judge(proven: &[Proven], accepts_undecided: bool) -> Result<(), Failure> {
    let gates: Option<Vec<&Gate>> = proven.iter().map(|run| run.outcome.gate.as_ref()).collect();
    match gates.and_then(|gates| Gate::of_runs(&gates)) {
        Some(gate) => end(&gate, accepts_undecided),
        None => Err(Failure::Undecided("not decided: a run has no answer".into())),
    }
}

/// Ends the command by the answer of a gate.
///
/// - `accepts_undecided`: of `--accept-undecided`.
///
/// Errors: worse, or not decided unless that is accepted.
pub(crate) fn end(gate: &Gate, accepts_undecided: bool) -> Result<(), Failure> {
    let said = report::answer::summary(gate);
    match gate.answer {
        GateAnswer::NoWorse => Ok(()),
        GateAnswer::Worse => Err(Failure::Threshold(format!("worse: {said}"))),
        GateAnswer::NotDecided if accepts_undecided => {
            console::say(&format!("accepted with --accept-undecided: {said}"));
            Ok(())
        }
        GateAnswer::NotDecided => Err(Failure::Undecided(said)),
    }
}
