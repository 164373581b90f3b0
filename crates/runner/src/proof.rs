//! An experiment before and after it is conducted.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{
    Arm, Ended, Load, LoadKind, Outcome, OutcomeHeader, Path, Phrases, Request, Schedule, Search,
    Support, TrialRecord,
};
use remote::Failure;
use remote::work::Ran;

/// Text of a run that a signal ended at once.
pub const NOTHING_KNOWN: &str = "interrupted before the first block ended; nothing is known yet";

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
    /// The user's name for it, and note on it.
    pub(crate) name: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) phrases: Phrases,
}

impl Proof {
    /// A proof without arms.
    pub(crate) fn new(
        request: &Request,
        path: &str,
        judged: Vec<String>,
        load: BTreeMap<String, String>,
    ) -> Self {
        Proof {
            path: path.to_owned(),
            judged,
            load,
            arms: Vec::new(),
            search: None,
            trial: None,
            gate: request.gate,
            deciding: Vec::new(),
            is_stored: request.is_stored,
            name: request.name.clone(),
            note: request.note.clone(),
            phrases: Phrases::default(),
        }
    }

    /// A proof without arms of a path under a load.
    pub(crate) fn for_path(
        request: &Request,
        path: &dyn Path,
        kind: &LoadKind,
        load: &Load,
        parameters: BTreeMap<String, String>,
    ) -> Self {
        let judged = kind.judged.iter().map(|&name| name.to_owned()).collect();
        let words = path.load_words(load);
        let spoken = path.switches().iter().filter(|switch| !switch.by.is_empty());
        let phrases = Phrases {
            noun: words.noun.to_owned(),
            baseline: words.baseline.to_owned(),
            by: spoken.map(|switch| (switch.id.to_owned(), switch.by.to_owned())).collect(),
        };
        let proof = Proof::new(request, path.name(), judged, parameters);
        Proof { trial: Some(load.trial), phrases, ..proof }
    }
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
    /// False if nothing is known: it was interrupted before its first block ended, or every trial failed.
    pub fn has_result(&self) -> bool {
        let has_figure = self.outcome.arms.iter().any(|arm| arm.trials > 0);
        match self.outcome.ended {
            Ended::Interrupted if !self.gave_up => self.outcome.blocks > 0,
            _ => has_figure || !self.gave_up,
        }
    }

    /// Errors: settings that could not be restored, one that a signal ended, no measurement of the baseline, or a run
    /// that was given up.
    ///
    /// - `is_stopped`: a stop was requested.
    pub fn verdict(&self, is_stopped: bool) -> Result<(), Failure> {
        if let Some(why) = &self.broken {
            return Err(Failure::failed(why));
        }
        if self.outcome.ended == Ended::Interrupted && is_stopped {
            return Err(Failure::Interrupted(self.interruption()));
        }
        match self.outcome.arms.first() {
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
            _ => Ok(()),
        }
    }

    /// Text about a run that a signal ended.
    fn interruption(&self) -> String {
        match self.outcome.blocks {
            0 => NOTHING_KNOWN.to_owned(),
            1 => "interrupted after 1 block; the result so far is above".to_owned(),
            blocks => format!("interrupted after {blocks} blocks; the result so far is above"),
        }
    }
}
