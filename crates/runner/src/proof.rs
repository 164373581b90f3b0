//! An experiment before and after it is conducted.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Arm, Ended, Outcome, OutcomeHeader, Schedule, Search, Support, TrialRecord};
use remote::Failure;
use remote::work::Ran;

/// An experiment that can be conducted: arms under a load.
#[derive(Clone)]
pub(crate) struct Proof {
    pub(crate) path: String,
    /// Metrics of the verdict, most important first.
    pub(crate) judged: Vec<String>,
    /// The load's parameters, which are stored with the result.
    pub(crate) load: BTreeMap<String, String>,
    pub(crate) arms: Vec<(Arm, Support)>,
    pub(crate) search: Option<Search>,
    /// Measured part of a trial; `None` if only a trial shows it.
    pub(crate) trial: Option<Duration>,
    /// True if no arm may be worse by more than the resolution.
    pub(crate) gate: bool,
    /// Metrics that decide the gate; empty for all.
    pub(crate) deciding: Vec<String>,
    /// False if the result is not stored.
    pub(crate) is_stored: bool,
}

/// An experiment that goes on after its last stored trial.
pub struct Resumed {
    pub header: OutcomeHeader,
    pub seed: u64,
    pub schedule: Schedule,
    /// In order of execution.
    pub trials: Vec<TrialRecord>,
}

/// An experiment that has ended.
pub struct Proven {
    pub outcome: Outcome,
    pub is_stored: bool,
    /// True if it was given up because its last trials all failed.
    pub gave_up: bool,
    /// Reason why its settings could not be restored.
    pub broken: Option<String>,
}

impl From<Ran> for Proven {
    /// That of another process, which reports settings that it could not restore as a failure.
    fn from(Ran { outcome, is_stored, gave_up }: Ran) -> Self {
        Proven { outcome, is_stored, gave_up, broken: None }
    }
}

impl Proven {
    /// Errors: settings that could not be restored, no measurement of the baseline, a run that was given up, or one
    /// that a signal ended.
    ///
    /// - `is_stopped`: a stop was requested.
    pub fn verdict(&self, is_stopped: bool) -> Result<(), Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::failed(why));
        }
        let is_interrupted = self.outcome.ended == Ended::Interrupted && is_stopped;
        match self.outcome.arms.first() {
            Some(arm) if arm.trials == 0 && arm.failures.is_empty() && is_interrupted => {
                Err(Failure::Interrupted("interrupted before the first trial that counts".into()))
            }
            Some(arm) if arm.trials == 0 || arm.metrics.is_empty() => {
                let why = match (arm.failures.first(), self.outcome.ended) {
                    (Some(why), _) => why,
                    (None, Ended::Interrupted) => "interrupted before its first trial that counts",
                    (None, Ended::TimeUp) => {
                        "--time was up after the warm-up; a warning of the result says how much a verdict takes"
                    }
                    (None, _) => "no trial was completed",
                };
                Err(Failure::failed(format!("the baseline gave no measurement: {why}")))
            }
            _ if self.gave_up => Err(Failure::failed(
                "the run was given up because its last trials all failed; earlier results are kept, and \
                 `wirepath history show` lists the errors",
            )),
            _ if is_interrupted => {
                let blocks = self.outcome.blocks;
                let plural = if blocks == 1 { "" } else { "s" };
                Err(Failure::Interrupted(format!(
                    "interrupted after {blocks} block{plural}; the result so far is above"
                )))
            }
            _ => Ok(()),
        }
    }
}
