//! Work of an agent on its host.

use std::path::PathBuf;
use std::time::Duration;

use fleet::book::{Job, Measured};
use fleet::rollout::{Answer, measured};
use host::exclusive::ExclusiveLock;

use super::allowed::{self, Task};
use super::experiment::{self, Running};
use super::hosts::Host;
use super::site::{STEP_MAX, Site, end_waiting};
use super::work::Work;
use crate::{console, signals};

/// Time limit for waiting on other experiments of this machine, which hold its lock.
const LOCK_TRIES: u32 = 6000;
const LOCK_LOOK: Duration = Duration::from_millis(100);

/// The host of an agent.
pub(super) struct Station {
    may_tune: bool,
    /// Folder of results; `None` for that of the user.
    data: Option<PathBuf>,
    /// Waits for the confirmation of a plan. It ends with the agent, and the host rolls back then.
    waiting: Option<Running>,
}

impl Station {
    pub(super) fn new(may_tune: bool, data: Option<PathBuf>) -> Self {
        Station { may_tune, data, waiting: None }
    }

    /// Does a job, to its end.
    ///
    /// - `beat`: called every few seconds meanwhile.
    pub(super) fn work(&mut self, job: &Job, beat: &mut dyn FnMut()) -> Measured {
        match allowed::read(&job.args, self.may_tune) {
            Err(failure) => {
                console::say(&format!("refused {}: {}", job.job, failure.text()));
                Measured::Refused(failure.text().to_owned())
            }
            Ok(Task::Prove) => self.prove(job, beat),
            Ok(Task::Mesh(part)) => {
                console::say(&format!("{}: {}", job.job, part.name()));
                part.measure(beat)
            }
            Ok(Task::Step(work)) => {
                console::say(&format!("{}: {}", job.job, work.name()));
                measured(&self.step(&work, beat))
            }
        }
    }

    /// Reports a plan that was rolled back because its confirmation did not come.
    pub(super) fn look_at_waiting(&mut self) {
        let Some(running) = &mut self.waiting else { return };
        if let Ok(Some(ended)) = running.wait(Duration::ZERO) {
            self.waiting = None;
            if !ended.status.success() {
                console::say(&format!("note: {}", experiment::reason(&ended)));
            }
        }
    }

    fn prove(&self, job: &Job, beat: &mut dyn FnMut()) -> Measured {
        let lock = match lock_machine(beat) {
            Ok(lock) => lock,
            Err(why) => return Measured::Failed(why),
        };
        console::say(&format!("measures {}: {}", job.job, job.args.join(" ")));
        let mut all = job.args.clone();
        if let Some(folder) = &self.data {
            all.extend(["--data-dir".into(), folder.to_string_lossy().into_owned()]);
        }
        let measured = experiment::measure(&Host::This, &[], &all, beat);
        drop(lock);
        match &measured {
            Measured::Done(_) => console::say(&format!("{} done", job.job)),
            Measured::Failed(why) | Measured::Refused(why) => {
                console::say(&format!("{} failed: {why}", job.job));
            }
        }
        measured
    }

    fn step(&mut self, work: &Work, beat: &mut dyn FnMut()) -> Answer {
        let lock = match work.measures().then(|| lock_machine(beat)).transpose() {
            Ok(lock) => lock,
            Err(why) => return Answer::Failed(why),
        };
        let site = Site {
            host: &Host::This,
            ssh_options: &[],
            state: None,
            data: self.data.as_deref(),
            held_max: STEP_MAX,
        };
        if let Work::Apply { .. } = work {
            let (answer, running) = site.apply(work, beat);
            // A plan that was refused leaves an earlier one as it is.
            self.waiting = running.or(self.waiting.take());
            return answer;
        }
        let answer = site.once(work, beat);
        drop(lock);
        if matches!(work, Work::Confirm { .. } | Work::RollBack { .. }) {
            let is_done = matches!(answer, Answer::Done(_));
            end_waiting(self.waiting.take_if(|_| is_done));
        }
        answer
    }
}

/// Locks the machine, after experiments that run.
fn lock_machine(beat: &mut dyn FnMut()) -> Result<ExclusiveLock, String> {
    let mut conflict = None;
    for attempt in 1..=LOCK_TRIES {
        match ExclusiveLock::acquire_alone() {
            Ok(lock) => return Ok(lock),
            Err(other) => conflict = Some(other),
        }
        if signals::stop_requested() {
            break;
        }
        if attempt % 50 == 0 {
            beat();
        }
        std::thread::sleep(LOCK_LOOK);
    }
    Err(conflict.map_or_else(|| "interrupted".into(), |conflict| conflict.to_string()))
}
