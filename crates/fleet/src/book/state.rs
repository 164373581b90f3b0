//! States of a job.

use serde::{Deserialize, Serialize};

/// State of a job in the coordinator's book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In the book only.
    Planned,
    /// Handed to the exchange.
    Given,
    /// On the agent's disk; its measurement has not begun.
    Accepted,
    /// Its measurement has begun.
    Running,
    /// Measured; the result is not stored yet.
    Done,
    /// Measured without a result.
    Failed,
    /// The agent does not do such work.
    Refused,
    /// The agent ended during the measurement.
    Interrupted,
    /// Its result, or the reason for its absence, is in the archive.
    Stored,
    /// Its time passed before it was accepted.
    Expired,
    /// Its host fell silent.
    Lost,
    /// Cancelled by the user.
    Cancelled,
}

/// Cause of a change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The coordinator hands it to the exchange.
    Give,
    /// The agent has it on its disk.
    Accept,
    /// Its measurement begins.
    Begin,
    /// Its measurement ended with a result.
    Finish,
    /// Its measurement failed.
    Fail,
    /// The agent refuses it.
    Refuse,
    /// The agent ended while it ran.
    Interrupt,
    /// Its result is in the archive.
    Store,
    /// Its time has passed.
    Expire,
    /// Its host is silent and has no lease.
    Lose,
    /// The user cancels it.
    Cancel,
    /// It is measured anew, as another attempt.
    Again,
}

impl State {
    /// Every state.
    pub const ALL: [State; 12] = [
        State::Planned,
        State::Given,
        State::Accepted,
        State::Running,
        State::Done,
        State::Failed,
        State::Refused,
        State::Interrupted,
        State::Stored,
        State::Expired,
        State::Lost,
        State::Cancelled,
    ];

    /// State after an event; `None` if the event cannot happen in this state.
    ///
    /// Reports may be skipped: a coordinator that was away learns of a result without having seen the job
    /// accepted or running.
    pub fn after(self, event: Event) -> Option<State> {
        use Event::{Accept, Again, Begin, Cancel, Expire, Fail, Finish, Give, Interrupt, Lose};
        use Event::{Refuse, Store};
        use State::{Accepted, Given, Planned, Running};
        let is_with_agent = matches!(self, Given | Accepted | Running);
        Some(match (self, event) {
            (Planned, Give) => Given,
            (Given, Accept) => Accepted,
            (Given | Accepted, Begin) => Running,
            (_, Finish) if is_with_agent => State::Done,
            (_, Fail) if is_with_agent => State::Failed,
            (_, Refuse) if is_with_agent => State::Refused,
            (_, Interrupt) if is_with_agent => State::Interrupted,
            (State::Done | State::Failed | State::Refused | State::Interrupted, Store) => {
                State::Stored
            }
            (Planned | Given, Expire) => State::Expired,
            (_, Lose) if is_with_agent => State::Lost,
            (_, Cancel) if is_with_agent || self == Planned => State::Cancelled,
            (State::Interrupted, Again) => Planned,
            (_, Again) if is_with_agent => Planned,
            _ => return None,
        })
    }

    /// True if a job in this state can end as `end`, with or without the report between.
    pub fn can_end_as(self, end: State) -> bool {
        let event = match end {
            State::Done => Event::Finish,
            State::Failed => Event::Fail,
            State::Refused => Event::Refuse,
            State::Interrupted => Event::Interrupt,
            State::Expired => Event::Expire,
            State::Lost => Event::Lose,
            State::Cancelled => Event::Cancel,
            _ => return false,
        };
        self.after(event) == Some(end)
    }

    /// True if nothing changes it any more.
    pub fn is_final(self) -> bool {
        matches!(self, State::Stored | State::Expired | State::Lost | State::Cancelled)
    }

    /// Name in the book.
    pub fn name(self) -> &'static str {
        match self {
            State::Planned => "planned",
            State::Given => "given",
            State::Accepted => "accepted",
            State::Running => "running",
            State::Done => "done",
            State::Failed => "failed",
            State::Refused => "refused",
            State::Interrupted => "interrupted",
            State::Stored => "stored",
            State::Expired => "expired",
            State::Lost => "lost",
            State::Cancelled => "cancelled",
        }
    }

    /// State of a name.
    pub fn from_name(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EVENTS: [Event; 12] = [
        Event::Give,
        Event::Accept,
        Event::Begin,
        Event::Finish,
        Event::Fail,
        Event::Refuse,
        Event::Interrupt,
        Event::Store,
        Event::Expire,
        Event::Lose,
        Event::Cancel,
        Event::Again,
    ];

    #[test]
    fn every_state_is_reached_and_leads_to_an_end() {
        let mut reached = BTreeSet::from([State::Planned]);
        for _ in 0..State::ALL.len() {
            let next = reached.iter().flat_map(|s| EVENTS.iter().filter_map(|e| s.after(*e)));
            let next: Vec<State> = next.collect();
            reached.extend(next);
        }
        assert_eq!(reached.len(), State::ALL.len());
        for state in State::ALL {
            let leads_on = EVENTS.iter().any(|event| state.after(*event).is_some());
            assert_eq!(state.is_final(), !leads_on, "{state:?}");
        }
    }

    #[test]
    fn running_job_neither_expires_nor_is_given_again() {
        for event in [Event::Expire, Event::Give, Event::Accept, Event::Begin] {
            assert_eq!(State::Running.after(event), None, "{event:?}");
        }
        assert_eq!(State::Interrupted.after(Event::Begin), None, "never measured silently again");
    }

    #[test]
    fn names_are_read_back() {
        for state in State::ALL {
            assert_eq!(State::from_name(state.name()), Some(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
        }
        assert_eq!(State::from_name("x"), None);
    }
}
