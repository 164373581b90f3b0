//! States of a roll-out.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

/// State of a roll-out. Stages count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum State {
    /// Hosts and stages are drawn.
    Planned,
    /// Every host checks the plan and measures itself without it.
    Baseline,
    /// Hosts of the stage measure with and without the plan in turn, untouched hosts beside them.
    Proving {
        /// The stage.
        stage: usize,
    },
    /// Hosts of the stage apply the plan; each rolls back by itself unless it is confirmed.
    Applying {
        /// The stage.
        stage: usize,
    },
    /// Hosts of the stage keep the plan, unconfirmed, and are watched.
    Holding {
        /// The stage.
        stage: usize,
    },
    /// The plan is confirmed on hosts of the stage.
    Confirming {
        /// The stage.
        stage: usize,
    },
    /// Every stage has the plan.
    Done,
    /// As [`State::Done`], and it can no longer be aborted.
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
pub enum Event {
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

impl State {
    /// State after an event; `None` if the event cannot happen in this state.
    ///
    /// - `stages`: number of stages of the roll-out.
    pub fn after(self, event: Event, stages: usize) -> Option<State> {
        use State::{Applying, Baseline, Confirming, Done, Holding, Kept, Paused, Planned};
        use State::{Proving, RolledBack, RollingBack, Stuck};
        Some(match (self, event) {
            (Planned, Event::Pass) => Baseline,
            (Baseline, Event::Pass) => Proving { stage: 0 },
            (Proving { stage }, Event::Again) => Proving { stage },
            (Proving { stage }, Event::Pass) => Applying { stage },
            (Applying { stage }, Event::Pass) => Holding { stage },
            (Holding { stage }, Event::Pass) => Confirming { stage },
            (Confirming { stage }, Event::Pass) if stage + 1 < stages => {
                Proving { stage: stage + 1 }
            }
            (Confirming { .. }, Event::Pass) => Done,
            (RollingBack { .. }, Event::Pass) => RolledBack,
            (RollingBack { stages }, Event::Silence) => Stuck { stages },
            (RolledBack | Kept, Event::Abort) => return None,
            (Done, Event::Trigger) => return None,
            (_, Event::Trigger) if self.is_at_work() => {
                RollingBack { stages: self.stages_touched(stages) }
            }
            (_, Event::Abort) => RollingBack { stages: self.stages_touched(stages) },
            (Planned | Baseline, Event::Pause) => Paused { stage: 0, proven: false },
            (Proving { stage }, Event::Pause) => Paused { stage, proven: false },
            (Applying { stage } | Holding { stage }, Event::Pause) => {
                Paused { stage, proven: true }
            }
            (Planned | Baseline, Event::Resume)
            | (Paused { stage: 0, proven: false }, Event::Resume) => Baseline,
            (Proving { stage } | Paused { stage, proven: false }, Event::Resume) => {
                Proving { stage }
            }
            (
                Applying { stage }
                | Holding { stage }
                | Confirming { stage }
                | Paused { stage, proven: true },
                Event::Resume,
            ) => Applying { stage },
            (RollingBack { stages } | Stuck { stages }, Event::Resume) => RollingBack { stages },
            (Done, Event::Keep) => Kept,
            _ => return None,
        })
    }

    /// Number of stages whose hosts may have the plan, or had it and did not say that it is gone.
    pub fn stages_touched(self, stages: usize) -> usize {
        match self {
            State::Planned | State::Baseline | State::RolledBack => 0,
            State::Proving { stage } => stage,
            // Hosts of a proven stage may be in the middle of applying, or of rolling back by themselves.
            State::Applying { stage } | State::Holding { stage } | State::Confirming { stage } => {
                stage + 1
            }
            State::Paused { stage, proven } => stage + usize::from(proven),
            State::Done | State::Kept => stages,
            State::RollingBack { stages } | State::Stuck { stages } => stages,
        }
    }

    /// True if a process should go on with it until something ends it.
    pub fn is_at_work(self) -> bool {
        !matches!(
            self,
            State::Done
                | State::Kept
                | State::Paused { .. }
                | State::RolledBack
                | State::RollingBack { .. }
                | State::Stuck { .. }
        )
    }

    /// True if the process that conducts it ends here.
    pub fn is_end(self) -> bool {
        !self.is_at_work() && !matches!(self, State::RollingBack { .. })
    }
}

impl Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, stage) = match self {
            State::Planned => ("planned", None),
            State::Baseline => ("baseline", None),
            State::Proving { stage } => ("proving", Some(stage)),
            State::Applying { stage } => ("applying", Some(stage)),
            State::Holding { stage } => ("holding", Some(stage)),
            State::Confirming { stage } => ("confirming", Some(stage)),
            State::Done => ("done", None),
            State::Kept => ("kept", None),
            State::Paused { stage, .. } => ("paused", Some(stage)),
            State::RollingBack { .. } => ("rolling back", None),
            State::RolledBack => ("rolled back", None),
            State::Stuck { .. } => ("stuck", None),
        };
        match (stage, self) {
            (None, _) => f.write_str(name),
            (Some(stage), State::Paused { .. }) => write!(f, "{name} before stage {}", stage + 1),
            (Some(stage), _) => write!(f, "stage {}: {name}", stage + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EVENTS: [Event; 8] = [
        Event::Pass,
        Event::Again,
        Event::Trigger,
        Event::Pause,
        Event::Resume,
        Event::Abort,
        Event::Silence,
        Event::Keep,
    ];

    const STAGES: usize = 3;

    fn reached() -> BTreeSet<State> {
        let mut reached = BTreeSet::from([State::Planned]);
        loop {
            let next: Vec<State> = reached
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
                let back = state.after(Event::Trigger, STAGES);
                assert!(matches!(back, Some(State::RollingBack { .. })), "{state}");
                assert!(state.after(Event::Resume, STAGES).is_some(), "{state}");
            }
            let can_abort = state.after(Event::Abort, STAGES).is_some();
            assert_eq!(can_abort, !matches!(state, State::RolledBack | State::Kept), "{state}");
        }
    }

    #[test]
    fn a_plan_is_confirmed_only_after_proving_applying_and_holding_in_the_same_stage() {
        for state in reached() {
            for event in EVENTS {
                let Some(State::Confirming { stage }) = state.after(event, STAGES) else {
                    continue;
                };
                assert_eq!((state, event), (State::Holding { stage }, Event::Pass));
            }
            if let Some(State::Holding { stage }) = state.after(Event::Pass, STAGES) {
                assert_eq!(state, State::Applying { stage });
            }
        }
    }

    #[test]
    fn no_event_forgets_a_stage_that_may_have_the_plan() {
        for state in reached() {
            for event in EVENTS {
                let Some(next) = state.after(event, STAGES) else { continue };
                let is_rollback_done = next == State::RolledBack;
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
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state, "{text}");
        }
    }
}
