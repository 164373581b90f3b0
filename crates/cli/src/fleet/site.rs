//! One host at which calls of roll-outs are answered, each by a process there.

use std::time::{Duration, Instant};

use fleet::rollout::StepAnswer;
use remote::work::{self, Call, RolloutStep};
use remote::{Failure, FarOptions};

use super::caller::{self, HostCaller, STEP_TIMEOUT};
use super::hosts::Host;
use crate::running::Folders;

/// Least time limit for a step of a plan that is held.
const HELD_TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// A host, and the places of its journal and its results.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    /// Not a namespace: plans name theirs.
    pub(super) host: &'a Host,
    /// Of the ssh client, each as for its `-o`.
    pub(super) ssh_options: &'a [String],
    pub(super) folders: Folders<'a>,
    /// Time limit for a step of a plan that is held: others must be asked again before they roll back.
    pub(super) held_timeout: Duration,
}

/// Time in which a host must answer while its plan is held.
///
/// - `within`: time without contact after which it rolls back.
pub(super) fn held_timeout(within: Duration) -> Duration {
    (within / 3).clamp(HELD_TIMEOUT_MIN, STEP_TIMEOUT)
}

impl Site<'_> {
    fn start(&self) -> Result<HostCaller, Failure> {
        let options = FarOptions { ssh_options: self.ssh_options, ..FarOptions::default() };
        caller::start(self.host, &options, self.folders)
    }

    /// Has a call answered. The answer to an experiment is its outcome.
    ///
    /// - `beat`: called every few seconds meanwhile.
    pub(super) fn once(&self, call: &Call, beat: &mut dyn FnMut()) -> StepAnswer {
        let limit = match call {
            Call::Step(step)
                if matches!(**step, RolloutStep::Extend { .. } | RolloutStep::Verify { .. }) =>
            {
                self.held_timeout
            }
            _ => caller::time_limit(call),
        };
        let asked = self.start().and_then(|mut caller| caller::ask(&mut caller, call, limit, beat));
        answer(asked)
    }

    /// Applies a plan, and waits until the settings are changed. Returns the process that waits for the confirmation:
    /// with it, or with the thread that calls this, the host rolls back.
    ///
    /// - `call`: [`RolloutStep::Apply`].
    pub(super) fn apply(&self, call: &Call) -> (StepAnswer, Option<HostCaller>) {
        let mut caller = match self.start() {
            Ok(caller) => caller,
            Err(failure) => return (answer(Err(failure)), None),
        };
        let applied = answer(caller::ask(&mut caller, call, STEP_TIMEOUT, &mut || {}));
        let is_waiting = matches!(applied, StepAnswer::Done(_));
        (applied, is_waiting.then_some(caller))
    }
}

/// - `asked`: an error if the host could not be reached, or broke off: its state is unknown.
fn answer(asked: Result<work::Answer, Failure>) -> StepAnswer {
    match asked {
        Err(failure) => StepAnswer::Silent(failure.into_text()),
        Ok(work::Answer::Drifted(text)) => StepAnswer::Drifted(text),
        Ok(answered) => match caller::result_text(answered) {
            Ok(text) => StepAnswer::Done(text),
            Err(failure) => StepAnswer::Failed(failure.into_text()),
        },
    }
}

/// Waits for the end of processes whose settings were confirmed or rolled back.
pub(super) fn end_waiting(ending: impl IntoIterator<Item = HostCaller>) {
    let until = Instant::now() + STEP_TIMEOUT;
    for mut caller in ending {
        // Its second answer, or its end.
        let _ = caller.answer(until.saturating_duration_since(Instant::now()));
    }
}
