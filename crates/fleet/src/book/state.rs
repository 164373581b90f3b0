//! States of a job.

use serde::{Deserialize, Serialize};

/// Condition in SQL for jobs that something may still change; [`JobState::is_final`] says the opposite.
pub(crate) const IS_OPEN: &str = "state NOT IN ('stored', 'expired', 'lost', 'cancelled')";

/// State of a job in the coordinator's book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobState {
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
pub enum JobEvent {
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

impl JobState {
    /// Every state.
    pub const ALL: [JobState; 12] = [
        JobState::Planned,
        JobState::Given,
        JobState::Accepted,
        JobState::Running,
        JobState::Done,
        JobState::Failed,
        JobState::Refused,
        JobState::Interrupted,
        JobState::Stored,
        JobState::Expired,
        JobState::Lost,
        JobState::Cancelled,
    ];

    /// State after an event; `None` if the event cannot happen in this state.
    ///
    /// Reports may be skipped: a coordinator that was away learns of a result without having seen the job
    /// accepted or running.
    pub fn after(self, event: JobEvent) -> Option<JobState> {
        use JobEvent::{Accept, Again, Begin, Cancel, Expire, Fail, Finish, Give, Interrupt, Lose};
        use JobEvent::{Refuse, Store};
        use JobState::{Accepted, Given, Planned, Running};
        let is_with_agent = matches!(self, Given | Accepted | Running);
        Some(match (self, event) {
            (Planned, Give) => Given,
            (Given, Accept) => Accepted,
            (Given | Accepted, Begin) => Running,
            (_, Finish) if is_with_agent => JobState::Done,
            (_, Fail) if is_with_agent => JobState::Failed,
            (_, Refuse) if is_with_agent => JobState::Refused,
            (_, Interrupt) if is_with_agent => JobState::Interrupted,
            (
                JobState::Done | JobState::Failed | JobState::Refused | JobState::Interrupted,
                Store,
            ) => JobState::Stored,
            (Planned | Given, Expire) => JobState::Expired,
            (_, Lose) if is_with_agent => JobState::Lost,
            (_, Cancel) if is_with_agent || self == Planned => JobState::Cancelled,
            (JobState::Interrupted, Again) => Planned,
            (_, Again) if is_with_agent => Planned,
            _ => return None,
        })
    }

    /// True if a job in this state can end as `end`, with or without the report between.
    pub fn can_end_as(self, end: JobState) -> bool {
        let event = match end {
            JobState::Done => JobEvent::Finish,
            JobState::Failed => JobEvent::Fail,
            JobState::Refused => JobEvent::Refuse,
            JobState::Interrupted => JobEvent::Interrupt,
            JobState::Expired => JobEvent::Expire,
            JobState::Lost => JobEvent::Lose,
            JobState::Cancelled => JobEvent::Cancel,
            _ => return false,
        };
        self.after(event) == Some(end)
    }

    /// True if nothing changes it any more.
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Stored | JobState::Expired | JobState::Lost | JobState::Cancelled)
    }

    /// Name in the book.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Planned => "planned",
            JobState::Given => "given",
            JobState::Accepted => "accepted",
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Refused => "refused",
            JobState::Interrupted => "interrupted",
            JobState::Stored => "stored",
            JobState::Expired => "expired",
            JobState::Lost => "lost",
            JobState::Cancelled => "cancelled",
        }
    }

    /// State of a name.
    pub fn from_name(name: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EVENTS: [JobEvent; 12] = [
        JobEvent::Give,
        JobEvent::Accept,
        JobEvent::Begin,
        JobEvent::Finish,
        JobEvent::Fail,
        JobEvent::Refuse,
        JobEvent::Interrupt,
        JobEvent::Store,
        JobEvent::Expire,
        JobEvent::Lose,
        JobEvent::Cancel,
        JobEvent::Again,
    ];

    #[test]
    fn every_state_is_reached_and_leads_to_an_end() {
        let mut reached = BTreeSet::from([JobState::Planned]);
        for _ in 0..JobState::ALL.len() {
            let next = reached.iter().flat_map(|s| EVENTS.iter().filter_map(|e| s.after(*e)));
            let next: Vec<JobState> = next.collect();
            reached.extend(next);
        }
        assert_eq!(reached.len(), JobState::ALL.len());
        for state in JobState::ALL {
            let leads_on = EVENTS.iter().any(|event| state.after(*event).is_some());
            assert_eq!(state.is_final(), !leads_on, "{state:?}");
        }
    }

    #[test]
    fn running_job_neither_expires_nor_is_given_again() {
        for event in [JobEvent::Expire, JobEvent::Give, JobEvent::Accept, JobEvent::Begin] {
            assert_eq!(JobState::Running.after(event), None, "{event:?}");
        }
        assert_eq!(
            JobState::Interrupted.after(JobEvent::Begin),
            None,
            "never measured silently again"
        );
    }

    #[test]
    fn names_are_read_back() {
        for state in JobState::ALL {
            assert_eq!(JobState::from_name(state.name()), Some(state));
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
        }
        assert_eq!(JobState::from_name("x"), None);
    }

    #[test]
    fn open_jobs_are_those_whose_state_is_not_final() {
        let names = JobState::ALL.into_iter().filter(|state| state.is_final());
        let names: Vec<String> = names.map(|state| format!("'{}'", state.name())).collect();
        assert_eq!(IS_OPEN, format!("state NOT IN ({})", names.join(", ")));
    }
}
