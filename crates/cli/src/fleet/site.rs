//! One host at which steps of roll-outs are done, by a program there.

use std::path::Path;
use std::time::{Duration, Instant};

use fleet::rollout::Answer;
use remote::Failure;
use sys::child::Finished;

use super::experiment::{self, BEAT, Running};
use super::hosts::Host;
use super::work::Work;
use crate::signals;

/// Limit for a step that measures nothing.
pub(super) const STEP_MAX: Duration = Duration::from_secs(60);
/// Least limit for a step of a plan that is held.
const HELD_MIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);

/// A host, and the places of what it keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) host: &'a Host,
    /// Of the ssh client, each as for its `-o`.
    pub(super) ssh_options: &'a [String],
    /// Folder of the journal on this machine; `None` for that of the machine.
    pub(super) state: Option<&'a Path>,
    /// Folder of results on this machine; `None` for that of the user.
    pub(super) data: Option<&'a Path>,
    /// Limit for a step of a plan that is held: others must be asked again before they roll back.
    pub(super) held_max: Duration,
}

/// Time in which a host must answer while its plan is held.
///
/// - `within`: time without contact after which it rolls back.
pub(super) fn held_max(within: Duration) -> Duration {
    (within / 3).clamp(HELD_MIN, STEP_MAX)
}

impl Site<'_> {
    fn start(&self, work: &Work) -> Result<Running, Failure> {
        work.start(self.host, self.ssh_options, self.state, self.data)
    }

    /// Does a step, to its end.
    ///
    /// - `beat`: called every few seconds meanwhile.
    pub(super) fn once(&self, work: &Work, beat: &mut dyn FnMut()) -> Answer {
        // A program that cannot be started, here or by ssh: the state of the host is unknown.
        self.run(work, beat).unwrap_or_else(|failure| Answer::Silent(failure.text().to_owned()))
    }

    fn run(&self, work: &Work, beat: &mut dyn FnMut()) -> Result<Answer, Failure> {
        let interrupted = || Answer::Silent("interrupted".into());
        let limit = match work {
            Work::Measure { arguments, .. } => experiment::limit(arguments),
            Work::Extend { .. } | Work::Verify { .. } => self.held_max,
            _ => STEP_MAX,
        };
        let mut running = self.start(work)?;
        let (begun, mut beaten) = (Instant::now(), Instant::now());
        let mut is_told = false;
        while begun.elapsed() < limit {
            let look = if work.measures() { experiment::LOOK } else { LOOK };
            if let Some(ended) = running.wait(look)? {
                return Ok(if is_told { interrupted() } else { self.answer(work, &ended) });
            }
            if work.measures() && signals::stop_requested() && !is_told {
                is_told = true;
                match &mut running {
                    Running::Child(child) => child.interrupt(),
                    Running::Far(_) => return Ok(interrupted()),
                }
            }
            if beaten.elapsed() >= BEAT {
                beaten = Instant::now();
                beat();
            }
        }
        Ok(Answer::Silent(format!("no answer within {} s", limit.as_secs())))
    }

    fn answer(&self, work: &Work, ended: &Finished) -> Answer {
        match (ended.status.code(), self.host) {
            (Some(0), _) if work.measures() => {
                Answer::Done(String::from_utf8_lossy(&ended.stdout).into_owned())
            }
            (Some(0), _) => Answer::Done(one_line(&ended.stdout)),
            // The client of ssh has lost its connection, or never had one.
            (Some(255), Host::Ssh(_)) => Answer::Silent(experiment::reason(ended)),
            (Some(4), _) => Answer::Drifted(one_line(&ended.stdout)),
            _ => Answer::Failed(experiment::reason(ended)),
        }
    }

    /// Starts to apply a plan, and waits until the settings are changed. Returns the program that waits for the
    /// confirmation: with it, or with the thread that calls this, the host rolls back.
    ///
    /// - `work`: [`Work::Apply`].
    pub(super) fn apply(&self, work: &Work, beat: &mut dyn FnMut()) -> (Answer, Option<Running>) {
        let silent = |failure: Failure| (Answer::Silent(failure.text().to_owned()), None);
        let Some(extend) = work.extension() else {
            return (Answer::Failed("it is no step that applies a plan".into()), None);
        };
        let mut running = match self.start(work) {
            Ok(running) => running,
            Err(failure) => return silent(failure),
        };
        let until = Instant::now() + STEP_MAX;
        while Instant::now() < until {
            match running.wait(LOOK) {
                Ok(None) => {}
                Ok(Some(ended)) => {
                    let answer = match self.answer(work, &ended) {
                        Answer::Done(said) => Answer::Failed(format!("did not wait: {said}")),
                        other => other,
                    };
                    return (answer, None);
                }
                Err(failure) => return silent(failure),
            }
            // Refused until the last setting is changed.
            if let Answer::Done(said) = self.once(&extend, beat) {
                return (Answer::Done(said), Some(running));
            }
        }
        (Answer::Silent(format!("not applied within {} s", STEP_MAX.as_secs())), None)
    }
}

/// Waits for the end of programs whose settings were confirmed or rolled back.
pub(super) fn end_waiting(ending: impl IntoIterator<Item = Running>) {
    let until = Instant::now() + STEP_MAX;
    for mut running in ending {
        while matches!(running.wait(LOOK), Ok(None)) && Instant::now() < until {}
    }
}

fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
