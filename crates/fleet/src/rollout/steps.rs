//! Steps of a roll-out on hosts with agents: a job for each host.

use remote::work::Call;

use super::{Answers, StepAnswer};
use crate::book::{
    ATTEMPTS_MAX, Archive, BookError, Coordinator, Exchange, Job, JobRow, JobState, Measured,
};

/// Separates the id of a roll-out from the number of the step in the name of an experiment. No other experiment has it
/// in its name ([`Archive::newest`]).
const SEPARATOR: char = '.';

/// The work of one host in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct HostStep {
    /// Place of the host in the list of the roll-out.
    pub at: usize,
    /// Name of the host.
    pub host: String,
    /// Work for its agent.
    pub call: Call,
    /// True if an agent that was killed in it may do it again.
    pub is_repeatable: bool,
}

/// Time limits of steps, milliseconds of the broker's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Agents must not begin after it.
    pub not_after_ms: u64,
    /// Hosts without an answer count as silent after it; `None` while their agents give signs of life.
    pub until_ms: Option<u64>,
}

/// The same step on several hosts at once.
///
/// A host takes the newest job alone, so that a step that came too late for it is never done after the next one.
#[derive(Debug)]
pub struct Steps {
    coordinator: Coordinator,
    experiment: String,
    hosts: Vec<(usize, String)>,
    until_ms: Option<u64>,
}

impl Steps {
    /// Enters the jobs into the book.
    ///
    /// - `id`: of the roll-out.
    /// - `number`: unique among the steps of the roll-out.
    pub fn plan(
        archive: &mut impl Archive,
        id: &str,
        number: u64,
        steps: &[HostStep],
        limits: StepLimits,
    ) -> Result<Self, BookError> {
        let experiment = format!("{id}{SEPARATOR}{number}");
        let jobs: Vec<Job> = steps
            .iter()
            .map(|step| Job {
                attempt: if step.is_repeatable { 1 } else { ATTEMPTS_MAX },
                ..Job::new(&experiment, &step.host, step.call.clone(), limits.not_after_ms)
            })
            .collect();
        archive.plan(&jobs)?;
        let coordinator = Coordinator::new(experiment.clone());
        let hosts = steps.iter().map(|step| (step.at, step.host.clone())).collect();
        Ok(Steps { coordinator, experiment, hosts, until_ms: limits.until_ms })
    }

    /// One turn; returns true once every host has answered or counts as silent.
    pub fn turn(
        &mut self,
        exchange: &mut impl Exchange,
        archive: &mut impl Archive,
        now_ms: u64,
    ) -> Result<bool, BookError> {
        if self.coordinator.turn(exchange, archive, now_ms)? {
            return Ok(true);
        }
        if self.until_ms.is_none_or(|until| now_ms <= until) {
            return Ok(false);
        }
        self.cancel(archive, "no answer in time")?;
        Ok(true)
    }

    /// Waits no longer: hosts that have not answered count as silent.
    pub fn cancel(&self, archive: &mut impl Archive, why: &str) -> Result<(), BookError> {
        self.coordinator.cancel(archive, why)
    }

    /// Answer of each host, in the order of the steps.
    pub fn answers(&self, archive: &mut impl Archive) -> Result<Answers, BookError> {
        let rows = archive.rows(&self.experiment)?;
        let answers = self
            .hosts
            .iter()
            .map(|(at, host)| (*at, answer(rows.iter().find(|row| row.host == *host))));
        Ok(answers.collect())
    }
}

/// An answer as the agent reports it.
pub fn measured(answer: &StepAnswer) -> Measured {
    match serde_json::to_string(answer) {
        Ok(body) => Measured::Done(body),
        Err(error) => Measured::Failed(error.to_string()),
    }
}

fn answer(row: Option<&JobRow>) -> StepAnswer {
    let Some(row) = row else { return StepAnswer::Silent("its job has not ended".into()) };
    match row.state {
        JobState::Done => serde_json::from_str(&row.body).unwrap_or_else(|error| {
            StepAnswer::Failed(format!("its answer cannot be read: {error}"))
        }),
        JobState::Failed | JobState::Refused => StepAnswer::Failed(row.body.clone()),
        state => StepAnswer::Silent(format!("{}: {}", state.name(), row.body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::{Agent, Outbox, SqliteBook};

    const LIMITS: StepLimits = StepLimits { not_after_ms: 1_000, until_ms: Some(2_000) };

    fn steps(hosts: &[&str], is_repeatable: bool) -> Vec<HostStep> {
        let numbered = hosts.iter().enumerate();
        numbered
            .map(|(at, host)| HostStep {
                at,
                host: (*host).to_owned(),
                call: Call::StopPing,
                is_repeatable,
            })
            .collect()
    }

    #[test]
    fn answers_come_back_as_they_were_given_and_a_silent_host_is_named_after_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = SqliteBook::open(folder.path().join("fleet.db")).unwrap();
        let mut archive = SqliteBook::open(folder.path().join("fleet.db")).unwrap();
        let hosts = ["a", "b", "c"];
        let mut steps = Steps::plan(&mut archive, "r", 1, &steps(&hosts, true), LIMITS).unwrap();
        assert!(!steps.turn(&mut book, &mut archive, 10).unwrap());
        for (host, said) in [
            ("a", measured(&StepAnswer::Drifted("x is 3".into()))),
            ("b", Measured::Refused("no --allow-tune".into())),
        ] {
            let outbox = Outbox::open(folder.path().join("agents.db"), host).unwrap();
            let mut agent = Agent::start(host, outbox).unwrap();
            agent
                .turn(
                    &mut book,
                    20,
                    |job| {
                        assert_eq!(job.call, Call::StopPing);
                        said
                    },
                    |_| true,
                )
                .unwrap();
        }
        assert!(!steps.turn(&mut book, &mut archive, 30).unwrap());
        assert!(steps.turn(&mut book, &mut archive, 2_001).unwrap());
        let answers = steps.answers(&mut archive).unwrap();
        assert_eq!(answers[0], (0, StepAnswer::Drifted("x is 3".into())));
        assert_eq!(answers[1], (1, StepAnswer::Failed("no --allow-tune".into())));
        assert!(
            matches!(&answers[2], (2, StepAnswer::Silent(why)) if why.contains("its time passed"))
        );
    }

    #[test]
    fn step_that_must_not_be_repeated_ends_with_its_agent() {
        for (is_repeatable, ends) in [(false, true), (true, false)] {
            let folder = tempfile::tempdir().unwrap();
            let mut book = SqliteBook::open(folder.path().join("fleet.db")).unwrap();
            let mut archive = SqliteBook::open(folder.path().join("fleet.db")).unwrap();
            let one = steps(&["a"], is_repeatable);
            let mut steps = Steps::plan(&mut archive, "r", 1, &one, LIMITS).unwrap();
            steps.turn(&mut book, &mut archive, 10).unwrap();
            let agent = || {
                let outbox = Outbox::open(folder.path().join("agents.db"), "a").unwrap();
                Agent::start("a", outbox).unwrap()
            };
            let killed = agent().turn(&mut book, 20, |_| panic!("killed before"), |_| false);
            killed.unwrap();
            agent().turn(&mut book, 30, |_| panic!("never without being asked"), |_| true).unwrap();
            assert_eq!(steps.turn(&mut book, &mut archive, 40).unwrap(), ends);
            let answers = steps.answers(&mut archive).unwrap();
            assert!(matches!(&answers[0].1, StepAnswer::Silent(_)), "{answers:?}");
        }
    }
}
