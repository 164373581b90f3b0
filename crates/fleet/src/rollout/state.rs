//! States of a roll-out.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// State of a roll-out. Stages count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum RolloutState {
    /// Hosts and stages are drawn.
    Planned,
    /// Every host checks the plan and measures itself without it.
    Baseline,
    /// Hosts of the stage measure with and without the plan in turn, untouched hosts beside them.
    Proving {
        /// Its number, from 0.
        stage: usize,
    },
    /// Hosts of the stage apply the plan; each rolls back by itself unless it is confirmed.
    Applying {
        /// Its number, from 0.
        stage: usize,
    },
    /// Hosts of the stage keep the plan, unconfirmed, and are watched.
    Holding {
        /// Its number, from 0.
        stage: usize,
    },
    /// The plan is confirmed on hosts of the stage.
    Confirming {
        /// Its number, from 0.
        stage: usize,
    },
    /// Every stage has the plan.
    Done,
    /// As [`RolloutState::Done`], and it can no longer be aborted.
    Kept,
    /// The user interrupted it; earlier stages keep the plan.
    Paused {
        /// The stage that comes next.
        stage: usize,
        /// True if its proof has passed.
        proven: bool,
    },
    /// Hosts restore the values from before the plan, newest stage first.
    RollingBack {
        /// Number of stages that may have the plan.
        stages: usize,
    },
    /// No host has the plan.
    RolledBack,
    /// Some hosts did not say that they rolled back.
    Stuck {
        /// Number of stages that may have the plan.
        stages: usize,
    },
}

/// Cause of a change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutEvent {
    /// The state's work is done, and nothing speaks against the next one.
    Pass,
    /// The proof of the stage is repeated.
    Again,
    /// A reason to roll back.
    Trigger,
    /// The user interrupts.
    Pause,
    /// A process goes on with it, after a pause or after its process was killed.
    Resume,
    /// The user wants every host rolled back.
    Abort,
    /// Some hosts did not say that they rolled back.
    Silence,
    /// The user gives up the way back.
    Keep,
}

impl RolloutState {
    /// State after an event; `None` if the event cannot happen in this state.
    ///
    /// - `stages`: number of stages of the roll-out.
    pub fn after(self, event: RolloutEvent, stages: usize) -> Option<RolloutState> {
        use RolloutState::{Applying, Baseline, Confirming, Done, Holding, Kept, Paused, Planned};
        use RolloutState::{Proving, RolledBack, RollingBack, Stuck};
        Some(match (self, event) {
            (Planned, RolloutEvent::Pass) => Baseline,
            (Baseline, RolloutEvent::Pass) => Proving { stage: 0 },
            (Proving { stage }, RolloutEvent::Again) => Proving { stage },
            (Proving { stage }, RolloutEvent::Pass) => Applying { stage },
            (Applying { stage }, RolloutEvent::Pass) => Holding { stage },
            (Holding { stage }, RolloutEvent::Pass) => Confirming { stage },
            (Confirming { stage }, RolloutEvent::Pass) if stage + 1 < stages => {
                Proving { stage: stage + 1 }
            }
            (Confirming { .. }, RolloutEvent::Pass) => Done,
            (RollingBack { .. }, RolloutEvent::Pass) => RolledBack,
            (RollingBack { stages }, RolloutEvent::Silence) => Stuck { stages },
            (RolledBack | Kept, RolloutEvent::Abort) => return None,
            (Done, RolloutEvent::Trigger) => return None,
            (_, RolloutEvent::Trigger) if self.is_at_work() => {
                RollingBack { stages: self.stages_touched(stages) }
            }
            (_, RolloutEvent::Abort) => RollingBack { stages: self.stages_touched(stages) },
            (Planned | Baseline, RolloutEvent::Pause) => Paused { stage: 0, proven: false },
            (Proving { stage }, RolloutEvent::Pause) => Paused { stage, proven: false },
            (Applying { stage } | Holding { stage }, RolloutEvent::Pause) => {
                Paused { stage, proven: true }
            }
            (Planned | Baseline, RolloutEvent::Resume)
            | (Paused { stage: 0, proven: false }, RolloutEvent::Resume) => Baseline,
            (Proving { stage } | Paused { stage, proven: false }, RolloutEvent::Resume) => {
                Proving { stage }
            }
            (
                Applying { stage }
                | Holding { stage }
                | Confirming { stage }
                | Paused { stage, proven: true },
                RolloutEvent::Resume,
            ) => Applying { stage },
            (RollingBack { stages } | Stuck { stages }, RolloutEvent::Resume) => {
                RollingBack { stages }
            }
            (Done, RolloutEvent::Keep) => Kept,
            _ => return None,
        })
    }

    /// Number of stages whose hosts may have the plan, or had it and did not say that it is gone.
    pub fn stages_touched(self, stages: usize) -> usize {
        match self {
            RolloutState::Planned | RolloutState::Baseline | RolloutState::RolledBack => 0,
            RolloutState::Proving { stage } => stage,
            // Hosts of a proven stage may be in the middle of applying, or of rolling back by themselves.
            RolloutState::Applying { stage }
            | RolloutState::Holding { stage }
            | RolloutState::Confirming { stage } => stage + 1,
            RolloutState::Paused { stage, proven } => stage + usize::from(proven),
            RolloutState::Done | RolloutState::Kept => stages,
            RolloutState::RollingBack { stages } | RolloutState::Stuck { stages } => stages,
        }
    }

    /// True if a process should go on with it until something ends it.
    pub fn is_at_work(self) -> bool {
        !matches!(
            self,
            RolloutState::Done
                | RolloutState::Kept
                | RolloutState::Paused { .. }
                | RolloutState::RolledBack
                | RolloutState::RollingBack { .. }
                | RolloutState::Stuck { .. }
        )
    }

    /// True if the process that conducts it ends here.
    pub fn is_end(self) -> bool {
        !self.is_at_work() && !matches!(self, RolloutState::RollingBack { .. })
    }
}

impl Display for RolloutState {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, stage) = match self {
            RolloutState::Planned => ("planned", None),
            RolloutState::Baseline => ("baseline", None),
            RolloutState::Proving { stage } => ("proving", Some(stage)),
            RolloutState::Applying { stage } => ("applying", Some(stage)),
            RolloutState::Holding { stage } => ("holding", Some(stage)),
            RolloutState::Confirming { stage } => ("confirming", Some(stage)),
            RolloutState::Done => ("done", None),
            RolloutState::Kept => ("kept", None),
            RolloutState::Paused { stage, .. } => ("paused", Some(stage)),
            RolloutState::RollingBack { .. } => ("rolling back", None),
            RolloutState::RolledBack => ("rolled back", None),
            RolloutState::Stuck { .. } => ("stuck", None),
        };
        match (stage, self) {
            (None, _) => f.write_str(name),
            (Some(stage), RolloutState::Paused { .. }) => {
                write!(f, "{name} before stage {}", stage + 1)
            }
            (Some(stage), _) => write!(f, "stage {}: {name}", stage + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EVENTS: [RolloutEvent; 8] = [
        RolloutEvent::Pass,
        RolloutEvent::Again,
        RolloutEvent::Trigger,
        RolloutEvent::Pause,
        RolloutEvent::Resume,
        RolloutEvent::Abort,
        RolloutEvent::Silence,
        RolloutEvent::Keep,
    ];

    const STAGES: usize = 3;

    fn reached() -> BTreeSet<RolloutState> {
        let mut reached = BTreeSet::from([RolloutState::Planned]);
        loop {
            let next: Vec<RolloutState> = reached
                .iter()
                .flat_map(|state| EVENTS.iter().filter_map(|event| state.after(*event, STAGES)))
                .collect();
            let before = reached.len();
            reached.extend(next);
            if reached.len() == before {
                return reached;
            }
        }
    }

    #[test]
    fn every_state_at_work_can_roll_back_and_go_on_after_a_kill() {
        for state in reached() {
            if state.is_at_work() {
                let back = state.after(RolloutEvent::Trigger, STAGES);
                assert!(matches!(back, Some(RolloutState::RollingBack { .. })), "{state}");
                assert!(state.after(RolloutEvent::Resume, STAGES).is_some(), "{state}");
            }
            let can_abort = state.after(RolloutEvent::Abort, STAGES).is_some();
            assert_eq!(
                can_abort,
                !matches!(state, RolloutState::RolledBack | RolloutState::Kept),
                "{state}"
            );
        }
    }

    #[test]
    fn a_plan_is_confirmed_only_after_proving_applying_and_holding_in_the_same_stage() {
        for state in reached() {
            for event in EVENTS {
                let Some(RolloutState::Confirming { stage }) = state.after(event, STAGES) else {
                    continue;
                };
                assert_eq!((state, event), (RolloutState::Holding { stage }, RolloutEvent::Pass));
            }
            if let Some(RolloutState::Holding { stage }) = state.after(RolloutEvent::Pass, STAGES) {
                assert_eq!(state, RolloutState::Applying { stage });
            }
        }
    }

    #[test]
    fn no_event_forgets_a_stage_that_may_have_the_plan() {
        for state in reached() {
            for event in EVENTS {
                let Some(next) = state.after(event, STAGES) else { continue };
                let is_rollback_done = next == RolloutState::RolledBack;
                assert!(
                    is_rollback_done || next.stages_touched(STAGES) >= state.stages_touched(STAGES),
                    "{state} {event:?} {next}"
                );
            }
        }
    }

    #[test]
    fn states_are_read_back() {
        for state in reached() {
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<RolloutState>(&text).unwrap(), state, "{text}");
        }
    }
}
